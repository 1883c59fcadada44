"""The loop: see what is there, decide, take the steps that are missing, write what has changed."""

from __future__ import annotations

import gc
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from elasticdl.cli.kubernetes.condition import RUNNING
from elasticdl.controller.core import Budget, Cluster, Drain, JobTarget, Planner, Pod, Queue, Role, Start
from elasticdl.controller.core import Phase as PodPhase
from elasticdl.controller.core.resources import Resources, plus
from elasticdl.controller.core.targets import pods_text
from elasticdl.controller.history.recording import RecordingPlanner
from elasticdl.controller.service import steps
from elasticdl.controller.service.informer import BACKOFF, Informer
from elasticdl.controller.service.job_log import JobLogs
from elasticdl.controller.service.lifecycle import (
    Case,
    Create,
    Discard,
    Phase,
    Resume,
    Scale,
    Step,
    Stop,
    Suspend,
    core_job,
    expected_orders,
    next_step,
)
from elasticdl.controller.service.limit_ranges import read_limit_range
from elasticdl.controller.service.metrics import Metrics
from elasticdl.controller.service.observing import grouped, job_of, owned, read_node, read_pod
from elasticdl.controller.service.quotas import budgets_of, read_queues, read_resource_quota
from elasticdl.controller.service.status import status_of
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import (
    CONFIG_MAP,
    EVENT,
    JOB,
    LIMIT_RANGE,
    NODE,
    POD,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    TRAINING_JOB,
    Manifest,
)
from elasticdl.shared.kubernetes.names import (
    COMPONENT_LABEL,
    NAME_LABEL,
    PRIORITY_LOW,
    QUEUES_LABEL,
    TRAINING_JOB_LABEL,
    WEIGHT,
    selector,
)
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
from elasticdl.shared.kubernetes.training_job.schema import MANAGED_BY
from elasticdl.shared.names import Service
from elasticdl.shared.process.garbage import uncollected
from elasticdl.shared.process.logs import get_logger

TICK_S = 1.0
"""Seconds after which the loop looks again although nothing has changed: estimates do without events."""
PAUSE_S = 0.1
"""Seconds between two turns of the loop: changes come in bursts."""
UNPLACED_S = 15.0
"""Seconds without a place after which a pod counts as refused: the job gets no more for a while."""
CHANGING = ("remainingSeconds", "metrics", "goodput")
"""Fields of a status that change all the time."""
CHANGING_EVERY_S = 10.0
WRITES_PER_S = 25.0
"""Most requests per second for fields that change all the time."""
THREADS = 8
_NO_CLASS = (0, 1.0)
"""Priority and weight of a class that is not known."""
_EVENTS: Mapping[type, str] = {
    Create: "Created",
    Scale: "Scaled",
    Suspend: "Suspended",
    Stop: "Stopped",
    Resume: "Resumed",
    Discard: "Removed",
}
"""Step -> the reason of its event on the TrainingJob."""

_log = get_logger()


@dataclass(slots=True)
class _Record:
    """What the controller remembers of a TrainingJob. Without it, it decides a little worse for a while.

    Attributes:
        ordered: the workers and ps that were asked for last, until the job's log says so. ``leaving``: the numbers of
            the workers that leave for that.
        chosen: by role, the nodes that the core has chosen for pods that have no node yet.
        refusal: why the last step was refused; empty: it was not.
    """

    generation: int = -1
    spec: TrainingJobSpec | None = None
    problem: str = ""
    ordered: tuple[int, int] | None = None
    leaving: frozenset[int] = frozenset()
    chosen: dict[Role, list[str]] = field(default_factory=dict)
    refusal: str = ""
    refused_s: float | None = None
    unplaced_s: float | None = None
    failures: int = 0
    retry_s: float = 0.0
    step: Future[None] | None = None
    writing: Future[None] | None = None
    written: Mapping[str, Any] = field(default_factory=dict)
    written_s: float = 0.0


class Controller:
    """Acts on the TrainingJobs of a namespace, or of the whole cluster.

    Args:
        namespace: empty: all.
        planner: who decides; its policy and its log are the caller's.
    """

    def __init__(
        self, api: KubernetesApi, namespace: str = "", planner: Planner | RecordingPlanner | None = None
    ) -> None:
        self._api = api
        self._planner = planner or Planner()
        self._owned: dict[str, tuple[Pod, Pod]] = {}
        """Pods as they were read, and with their TrainingJobs: most stay the same."""
        self._wake = threading.Event()
        own = api.in_namespace(namespace) if namespace else api
        changed = self._wake.set
        self._nodes = Informer(api, NODE, read_node, changed, everywhere=True)
        self._pods = Informer(api, POD, read_pod, changed, everywhere=True)
        self._classes = Informer(api, PRIORITY_CLASS, _read_class, changed, everywhere=True)
        self._queues = Informer(
            api, CONFIG_MAP, _read_queues, changed, everywhere=False, labels=selector({QUEUES_LABEL: "true"})
        )
        self._quotas = Informer(api, RESOURCE_QUOTA, read_resource_quota, changed, everywhere=True)
        self._limit_ranges = Informer(api, LIMIT_RANGE, read_limit_range, changed, everywhere=True)
        masters = selector({NAME_LABEL: "elasticdl", COMPONENT_LABEL: Service.MASTER.value})
        self._masters = Informer(own, POD, dict, changed, everywhere=not namespace, labels=masters)
        self._jobs = Informer(own, JOB, dict, changed, everywhere=not namespace, labels=TRAINING_JOB_LABEL)
        self._training_jobs = Informer(own, TRAINING_JOB, dict, changed, everywhere=not namespace)
        self._logs = JobLogs(changed)
        self._records: dict[str, _Record] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="step")
        self.metrics = Metrics()
        self._is_warm = False
        self.turned_s = time.monotonic()
        """When the loop has turned last."""

    @property
    def is_ready(self) -> bool:
        """Whether everything was listed once."""
        return all(each.is_synced.is_set() for each in self._informers)

    @property
    def _informers(self) -> Sequence[Informer[Any]]:
        return (
            self._nodes,
            self._pods,
            self._masters,
            self._classes,
            self._queues,
            self._quotas,
            self._limit_ranges,
            self._jobs,
            self._training_jobs,
        )

    def watch(self) -> None:
        """Watch the cluster from now on, and wait until everything was listed."""
        for each in self._informers:
            each.start()
        for each in self._informers:
            each.is_synced.wait()

    def run(self, acts: Callable[[], bool]) -> None:
        """Turn as long as ``acts`` says so."""
        while acts():
            self._wake.wait(TICK_S)
            self._wake.clear()
            self.turn(time.time())
            self.turned_s = time.monotonic()
            if not self._is_warm:
                self._is_warm = True
                gc.freeze()  # What is there now mostly stays: full collections need not look at it again.
                self._pool.submit(steps.warm_up)
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """End the threads; steps that have begun end first."""
        for each in self._informers:
            each.stop()
        self._pool.shutdown(cancel_futures=True)
        self._logs.stop()

    def turn(self, now_s: float) -> None:
        """Look once, and begin what is to be done; ``now_s``: seconds since the epoch."""
        cases = self._cases(now_s)
        cluster, began_s = self._cluster(cases), time.perf_counter()
        changes = self._planner.view.changes_to(cluster, filter(None, map(core_job, cases)))
        with uncollected():  # A decision leaves few cycles, and collections took a third of a first one.
            targets = self._planner.decide(changes, now_s)
        self.metrics.decided(time.perf_counter() - began_s)
        self.metrics.saw(cluster, (case.phase.value for case in cases))
        found = {each.job: each for each in targets.jobs}
        slow_s = max(CHANGING_EVERY_S, len(cases) / WRITES_PER_S)
        for case in cases:
            target, record = found.get(case.key), self._records[case.key]
            self._follow(case)
            if target is not None:
                for start in target.starts:
                    record.chosen.setdefault(start.role, []).append(start.node)
            step = next_step(case, target, now_s)
            if step is not None and _is_free(record.step) and now_s >= record.retry_s:
                self._begin(case, record, step, target)
            self._write(case, record, target, now_s, slow_s)
        self._forget(cases, now_s)

    # --- what is there ------------------------------------------------------------------------------------------------

    def _cases(self, now_s: float) -> list[Case]:
        jobs = {_owner_of(job): job for job in self._jobs.all()}
        pods = grouped(self._pods.all(), lambda seen: (seen.namespace, seen.pod.job))
        masters = grouped(self._masters.all(), job_of)
        classes = dict(self._classes.all())
        limit_ranges = grouped(self._limit_ranges.all(), lambda each: each.namespace)
        cases = []
        for manifest in self._training_jobs.all():
            metadata = manifest["metadata"]
            if manifest["spec"].get("managedBy", MANAGED_BY) != MANAGED_BY or "deletionTimestamp" in metadata:
                continue
            namespace, name = metadata["namespace"], metadata["name"]
            key = f"{namespace}/{name}"
            record = self._records.setdefault(key, _Record())
            _read_spec(record, manifest)
            job = jobs.get((namespace, name))
            facts = self._logs.facts(key)
            if facts is not None and facts.wanted == record.ordered:
                # From now on the log says what the master aims at, which users may change, too.
                record.ordered, record.leaving = None, frozenset()
            own = (namespace, job["metadata"]["name"] if job is not None else "")
            priority = record.spec.priority_class if record.spec else ""
            case = Case(
                key=key,
                manifest=manifest,
                spec=record.spec,
                problem=record.problem,
                job=job,
                pods=pods.get(own, ()),
                masters=masters.get(own, ()),
                facts=facts,
                ordered=record.ordered,
                leaving=record.leaving,
                priority=classes.get(priority or PRIORITY_LOW, _NO_CLASS)[0],
                weight=classes.get(priority or PRIORITY_LOW, _NO_CLASS)[1],
                refused_s=record.refused_s,
                limit_ranges=limit_ranges.get(namespace, ()),
            )
            cases.append(_without_place(case, record, now_s))
        return cases

    def _cluster(self, cases: Sequence[Case]) -> Cluster:
        owners = {each.pod.name: case.key for case in cases for each in case.pods}
        former, self._owned = self._owned, {}
        for each in self._pods.all():
            self._owned[each.pod.name] = owned(each.pod, owners.get(each.pod.name, ""), former.get(each.pod.name))
        ordered: list[Start | Drain] = []
        for case in cases:
            ordered += expected_orders(case, self._records[case.key].chosen)
        return Cluster(
            nodes=tuple(self._nodes.all()),
            pods=tuple(pod for _, pod in self._owned.values()),
            ordered=tuple(ordered),
            queues=tuple(queue for each in self._queues.all() for queue in each),
            budgets=self._budgets(owners),
        )

    def _budgets(self, owners: Mapping[str, str]) -> tuple[Budget, ...]:
        """What ResourceQuotas leave beside the pods of others."""
        quotas, others = self._quotas.all(), dict[str, Resources]()
        limited = {each.namespace for each in quotas}
        for each in self._pods.all() if limited else ():
            if each.namespace in limited and each.pod.name not in owners:
                others[each.namespace] = plus(others.get(each.namespace, {}), each.pod.request)
        return budgets_of(quotas, others)

    def _follow(self, case: Case) -> None:
        """Follow the log of a job whose master runs; that of a suspended job is forgotten."""
        condition = case.condition
        if case.phase is Phase.SUSPENDED or (case.phase.is_final and _is_written(case)):
            self._logs.forget(case.key)
        elif condition is not None and condition.is_running and condition.state == RUNNING:
            self._logs.follow(case.key, steps.handle_of(self._api, case))

    def _forget(self, cases: Sequence[Case], now_s: float) -> None:
        """Forget what was deleted, and delete what has ended long enough ago."""
        keys = {case.key for case in cases}
        for key in [key for key in self._records if key not in keys]:
            self._logs.forget(key)
            self._logs.forget_measurements(key)
            del self._records[key]
        for case in cases:
            ended = (case.manifest.get("status") or {}).get("completionTime")
            record = self._records[case.key]
            if case.spec is None or not ended or not case.phase.is_final or not _is_free(record.step):
                continue
            if now_s > datetime.fromisoformat(ended).timestamp() + case.spec.keep_finished_s:
                record.step = self._submit(self._delete, case)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _begin(self, case: Case, record: _Record, step: Step, target: JobTarget | None) -> None:
        if isinstance(step, Create | Scale):
            record.ordered = step.workers, step.ps
            record.leaving = frozenset(step.leaving) if isinstance(step, Scale) else frozenset()
        if isinstance(step, Resume | Suspend):
            record.ordered = None
            record.chosen.clear()
        reason = target.reason if target else ""
        _log.info("step", training_job=case.key, step=str(step), reason=reason)
        record.step = self._submit(self._take, case, record, step, reason)

    def _take(self, case: Case, record: _Record, step: Step, reason: str) -> None:
        """On a thread of the pool."""
        try:
            steps.execute(self._api, case, step)
        except ElasticDLError as error:
            record.failures += 1
            self.metrics.refusals += 1
            record.refusal, record.ordered = str(error), None
            record.refused_s = time.time()
            record.retry_s = record.refused_s + BACKOFF.pause_s(record.failures)
            _log.warning("a step was refused", training_job=case.key, step=str(step), reason=str(error))
            self._announce(case, "Refused", f"{_named(step)} was refused: {error}", is_warning=True)
        else:
            record.failures, record.refusal = 0, ""
            self.metrics.steps[type(step).__name__.lower()] += 1
            self._announce(case, _EVENTS[type(step)], f"{_named(step)}: {reason}" if reason else _named(step))

    def _submit(self, function: Callable[..., None], *arguments: Any) -> Future[None]:
        """Call a function on a thread of the pool; the loop turns when it has ended."""
        future = self._pool.submit(function, *arguments)
        future.add_done_callback(lambda _: self._wake.set())
        return future

    def _delete(self, case: Case) -> None:
        metadata = case.manifest["metadata"]
        try:
            self._api.in_namespace(metadata["namespace"]).delete(TRAINING_JOB, metadata["name"], uid=metadata["uid"])
        except ElasticDLError as error:
            _log.warning("a TrainingJob that has ended can't be deleted", training_job=case.key, reason=str(error))

    # --- what others see ----------------------------------------------------------------------------------------------

    def _write(self, case: Case, record: _Record, target: JobTarget | None, now_s: float, slow_s: float) -> None:
        """Write the status if it has changed, at most once a second."""
        if not _is_free(record.writing) or now_s < record.written_s + TICK_S:
            return
        status = status_of(case, target, now_s, record.refusal)
        if not record.written:
            record.written = case.manifest.get("status") or {}
        is_slow = now_s < record.written_s + slow_s
        if _without(status, CHANGING if is_slow else ()) != _without(record.written, CHANGING if is_slow else ()):
            record.written, record.written_s = status, now_s
            record.writing = self._pool.submit(self._patch_status, case, record, status)

    def _patch_status(self, case: Case, record: _Record, status: Mapping[str, Any]) -> None:
        metadata = case.manifest["metadata"]
        former = (case.manifest.get("status") or {}).keys()
        patch = {"status": {**dict.fromkeys(former - status.keys()), **status}}
        try:
            own = self._api.in_namespace(metadata["namespace"])
            own.patch(TRAINING_JOB, metadata["name"], patch, subresource="status")
        except ElasticDLError as error:
            record.written = {}
            _log.warning("a status can't be written", training_job=case.key, reason=str(error))

    def _announce(self, case: Case, reason: str, message: str, *, is_warning: bool = False) -> None:
        """An event on the TrainingJob, for ``kubectl describe``."""
        metadata, now = case.manifest["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": TRAINING_JOB.api_version,
                "kind": TRAINING_JOB.name,
                **{name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")},
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": "elasticdl-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.in_namespace(metadata["namespace"]).create(event)
        except ElasticDLError as error:
            _log.warning("an event can't be written", training_job=case.key, reason=str(error))


def _is_free(last: Future[None] | None) -> bool:
    """Whether the last one has ended, so that the next may begin."""
    return last is None or last.done()


def _owner_of(job: Manifest) -> tuple[str, str]:
    """Namespace and name of the TrainingJob of a Job."""
    return job["metadata"]["namespace"], job["metadata"]["labels"][TRAINING_JOB_LABEL]


def _read_class(manifest: Manifest) -> tuple[str, tuple[int, float]]:
    """Name, priority and weight of a PriorityClass."""
    metadata = manifest["metadata"]
    text = (metadata.get("annotations") or {}).get(WEIGHT, "1")
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < math.inf:
        _log.warning("a weight is not a positive number and counts as 1", priority_class=metadata["name"], weight=text)
        weight = 1.0
    return metadata["name"], (int(manifest["value"]), weight)


def _read_queues(manifest: Manifest) -> list[Queue]:
    queues, problems = read_queues(manifest)
    for each in problems:
        _log.warning("ignored an invalid queue", config_map=manifest["metadata"]["name"], reason=each)
    return queues


def _read_spec(record: _Record, manifest: Manifest) -> None:
    generation = manifest["metadata"].get("generation", 0)
    if generation == record.generation:
        return
    record.generation = generation
    try:
        record.spec, record.problem = TrainingJobSpec.from_manifest(manifest), ""
    except UserError as error:
        record.spec, record.problem = None, str(error)


def _without_place(case: Case, record: _Record, now_s: float) -> Case:
    """Note since when a pod waits for a place. After a while, what was asked for counts as refused."""
    is_waiting = any(each.pod.phase is PodPhase.PENDING and each.problem for each in case.pods)
    if not is_waiting:
        record.unplaced_s = None
        return case
    record.unplaced_s = record.unplaced_s or now_s
    if now_s < record.unplaced_s + UNPLACED_S:
        return case
    record.chosen.clear()
    record.refused_s = record.unplaced_s = now_s
    return replace(case, refused_s=now_s)


def _is_written(case: Case) -> bool:
    return (case.manifest.get("status") or {}).get("phase") == case.phase.value


def _without(status: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name not in names and value is not None}


def _named(step: Step) -> str:
    """A step in words."""
    match step:
        case Create(workers=workers, ps=ps):
            return f"started with {pods_text(workers, ps)}"
        case Scale(workers=workers, ps=ps):
            return f"asked for {pods_text(workers, ps)}"
        case Suspend(reason=reason):
            return f"suspended ({reason})"
        case Stop(reason=reason):
            return f"stopped ({reason})"
        case Resume(ps=ps):
            return f"resumed with {ps} ps"
        case _:
            return "removed what an interrupted creation has left"
