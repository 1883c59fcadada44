"""What must be true in the end, found out without asking the cores: the final weights themselves are counted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from tests.sim.job import OUTPUT, SimJob
from tests.sim.log_oracle import (
    checked_fold,
    evaluated_wrongly,
    exported_before_the_audit,
    with_all_evaluations,
    worked_as_a_spare,
)
from tests.sim.predictor import predicted_wrongly
from tests.sim.row_oracle import wrong_copies, wrong_rows, wrong_sums

from elasticdl.master.core import State
from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.evaluation.triggers import FINAL
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.reader import gather_weights, restore
from elasticdl.shared.errors import ElasticDLError, InvariantError
from elasticdl.shared.job.rounds import COHORTS_AHEAD
from elasticdl.shared.messages.commands import JobState, OpenPin
from elasticdl.shared.messages.events import (
    Decided,
    JobSubmitted,
    LogRecord,
    PsStarted,
    TaskFinished,
    TaskReturned,
    TermStarted,
    one_by_one,
)
from elasticdl.shared.model.partitioning import mask_of
from elasticdl.shared.model.placement import ALL, PARTITIONS, Placement
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.names import Incarnation, PodName, Purpose
from elasticdl.shared.wire.messages import Floats
from elasticdl.worker.core.training import SURPLUS
from elasticdl.worker.predictions.output import SUCCESS, TEMPORARY

Counts = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from tests.sim.master import MasterProcess
    from tests.sim.store import SimStore
    from tests.sim.world import World


class Oracle:
    """Collects what was seen from outside, and judges at the end."""

    def __init__(self, job: SimJob) -> None:
        self.exported: dict[PodName, tuple[Floats, Floats]] = {}
        """By ps: dense values, and the rows of the first table."""
        self.exported_version = 0
        """The evaluation whose saved model was exported; 0: none."""
        self._saved: set[int] = set()
        self._job = job
        self._pins: dict[tuple[int, PodName], Floats] = {}
        self._pinned_rows: dict[tuple[int, PodName], Floats] = {}
        self._seen: list[str] = []
        """Problems that were seen while the job ran."""
        self._checkpoints: list[tuple[int, dict[PodName, Incarnation], dict[PodName, Floats]]] = []

    def pinned(self, evaluation: int, dense: dict[PodName, Floats]) -> None:
        """An evaluation read the model: every batch of one evaluation must see the same one."""
        for ps, values in dense.items():
            first = self._pins.setdefault((evaluation, ps), values.copy())
            if not np.array_equal(first, values):
                self._seen.append(f"evaluation {evaluation} read two different states of {ps}")

    def pinned_rows(self, evaluation: int, rows: dict[PodName, Floats]) -> None:
        """An evaluation read rows: they catch up to the moment of its state, not to that of the request."""
        for ps, values in rows.items():
            first = self._pinned_rows.setdefault((evaluation, ps), values.copy())
            if not np.array_equal(first, values):
                self._seen.append(f"evaluation {evaluation} read two different states of the rows of {ps}")

    def saved(self, evaluation: int, dense: dict[PodName, Floats]) -> None:
        """The model of an evaluation was saved: it is the one that was evaluated."""
        self.pinned(evaluation, dense)
        self._saved.add(evaluation)

    def merged(self, records: float) -> None:
        """The metrics of an evaluation were computed from so many records."""
        if records != self._job.validation.records:
            self._seen.append(f"an evaluation has metrics of {records:g} records")

    def published(self, store: SimStore) -> None:
        """A file of a prediction job was published."""
        files = {info.uri for info in store.list(f"{OUTPUT}/") if f"/{TEMPORARY}/" not in info.uri}
        if f"{OUTPUT}/{SUCCESS}" in files and len(files) <= self._job.validation.tasks:
            self._seen.append("the predictions were complete before every file had its name")

    def checkpoint(self, epoch: int, instances: Mapping[PodName, Incarnation], dense: dict[PodName, Floats]) -> None:
        """A hook saved the model at the end of an epoch, from 0, as these instances of the ps have answered."""
        self._checkpoints.append((epoch, dict(instances), {ps: values.copy() for ps, values in dense.items()}))

    def judge(self, world: World, master: MasterProcess) -> list[str]:
        """Everything that is wrong with a finished job, besides what ``replayed`` tells when its master ends."""
        state, problems = with_all_evaluations(master.master.state, world.records())
        problems += self._seen
        if self._job.shape.spares and not world.disks_lost:
            problems += worked_as_a_spare(world.records())
        if state.job_state is not JobState.SUCCEEDED:
            reason = state.failure.message if state.failure else state.stop_reason
            return [*problems, f"the job is {state.job_state.value}: {reason}"]
        if self._job.shape.predicts:
            return problems + predicted_wrongly(world.store, self._job)
        if self._job.shape.evaluates:
            problems += _left_states(world)
            return problems + evaluated_wrongly(world.records(), state, self._job.spec)
        if state.closing.audit is None or not state.closing.audit.exact:
            problems.append(f"the audit is not exact: {state.closing.audit}")
        if state.repaired:
            problems.append(f"the audit repaired {state.repaired} tasks")
        problems += world.metric_oracle.wrong_epochs(state) + _left_states(world)
        problems += _disorderly(world) + self._returned_too_often(world.records())
        problems += exported_before_the_audit(world.records(), state)
        problems += self._evaluated_too_early(world.records())
        problems += self._not_an_epochs_end(state)
        problems += self._ended_wrongly(state)
        problems += self._not_the_best(state)
        self._planned = sum(task < state.plan.tasks for task, _ in self._job.batches)
        covered = np.zeros(PARTITIONS, np.int64)
        for ps, manifest in sorted(state.closing.manifests.items()):
            problems += self._count(world, state.placement, ps, manifest, covered)
        if (covered != 1).any():
            problems.append(f"partitions {np.flatnonzero(covered != 1).tolist()} are not in one final snapshot each")
        if not self._job.shape.catches_up:
            for ps, (values, _) in sorted(self.exported.items()):
                problems += self._dense(f"export of {ps}", self._counts(values))
        return problems

    def _evaluated_too_early(self, records: list[LogRecord]) -> list[str]:
        """An evaluation reads a model that has learned every task that was finished when it was decided."""
        if self._job.spec.grads_to_wait > 1:
            return []  # What is learned may wait in an accumulator.
        problems = []
        for number, after in _evaluations(records).items():
            known = [record.envelope.event for record in records if record.seq <= after]
            begun = max(place for place, event in enumerate(known) if isinstance(event, JobSubmitted))
            reported = [one for event in known[begun:] for one in one_by_one(event)]
            finished = [event for event in reported if isinstance(event, TaskFinished) and _is_training(event)]
            tasks = {event.task.number for event in finished}
            learned = [
                place
                for place, (task, _) in enumerate(self._job.batches)
                if task in tasks and not self._job.is_empty(place)
            ]
            for (evaluation, ps), values in self._pins.items():
                if evaluation == number and (self._counts(values)[:, learned] == 0).any():
                    problems.append(f"evaluation {number} read a state of {ps} that lacks what was finished before")
        return problems

    def _returned_too_often(self, records: list[LogRecord]) -> list[str]:
        """A worker that trains each round alone returns tasks only if they come in another order than their rounds.

        That is so after a ps went back, or after delays at the start, for at most a window of tasks: each of them may
        be returned once for each that comes before it.
        """
        shape = self._job.shape
        if not shape.synchronous or shape.workers > 1 or shape.grads_to_wait > 1:
            return []
        starts = sum(isinstance(record.envelope.event, PsStarted) for record in records)
        returned = sum(
            isinstance(event, TaskReturned) and event.reason == SURPLUS
            for record in records
            for event in one_by_one(record.envelope.event)
        )
        most = starts * (COHORTS_AHEAD + 1) ** 2
        return [f"{returned} surplus tasks were returned, at most {most} were expected"] if returned > most else []

    def _ended_wrongly(self, state: State) -> list[str]:
        """Training ends early only after as many epochs as the job allows, in a row, brought no better result."""
        if state.plan.epochs == self._job.epochs or state.job.best is None:
            return []
        patience = state.job.best.patience
        decisive = [each for each in state.evaluations if not (each.final and each.reason == FINAL)]
        done = [each for each in decisive if each.phase is EvaluationPhase.DONE]
        last = [each for each in done if each.is_epoch_end][-patience:]
        before = [each.results["loss"] for each in done if each.number < last[0].number]
        if len(last) < patience or not before or min(each.results["loss"] for each in last) < min(before):
            results = {each.number: each.results["loss"] for each in done}
            return [f"training ended after {state.plan.epochs} epochs with patience {patience}: {results}"]
        return []

    def _not_the_best(self, state: State) -> list[str]:
        """The exported model is the best one of those that could be saved."""
        if not self.exported_version:
            return []
        results = {each.number: each.results["loss"] for each in state.evaluations if each.results}
        best = min(value for number, value in results.items() if number in self._saved)
        if self.exported_version not in self._saved or results[self.exported_version] > best:
            return [f"the model of evaluation {self.exported_version} was exported: {results}, saved {self._saved}"]
        return []

    def _not_an_epochs_end(self, state: State) -> list[str]:
        """What is shown as the result of an epoch is of a model with every batch up to its end, and no other."""
        if self._job.spec.grads_to_wait > 1:
            return []
        problems = []
        for evaluation in state.evaluations:
            for (number, ps), values in self._pins.items():
                if not evaluation.is_epoch_end or number != evaluation.number:
                    continue
                if not self._is_end_of(evaluation.epoch, values):
                    problems.append(f"evaluation {number} read a state of {ps} that is not the end of its epoch")
        return problems + self._wrong_checkpoints(state)

    def _wrong_checkpoints(self, state: State) -> list[str]:
        """What a hook has saved is the end of its epoch, and of the instances that had the evaluated model."""
        problems = []
        for epoch, instances, dense in self._checkpoints:
            wrong = [ps for ps, values in dense.items() if not self._is_end_of(epoch, values)]
            if wrong:
                problems.append(f"a hook saved a state of {wrong} that is not the end of epoch {epoch + 1}")
            evaluated = [each.incarnations for each in state.evaluations if each.is_epoch_end and each.epoch == epoch]
            # What a lost log knew of evaluations is gone; the hooks' results are in the job's storage.
            if evaluated and instances not in evaluated and not state.lost_logs:
                problems.append(f"a hook saved the model of {instances}, and the one of {evaluated} was evaluated")
        return problems

    def _is_end_of(self, epoch: int, values: Floats) -> bool:
        """Whether a model has every batch up to the end of an epoch, from 0, and no other."""
        end = (epoch + 1) * self._job.plan.tasks_per_epoch
        expected = [float(task < end and not self._job.is_empty(n)) for n, (task, _) in enumerate(self._job.batches)]
        counts = self._counts(values)[:, :-1]
        return bool(((counts != 0 if self._job.shape.catches_up else counts) == expected).all())

    @staticmethod
    def replayed(records: list[LogRecord], master: MasterProcess) -> list[str]:
        """Folding the log gives the live state, unless the master was overtaken and can't decide anything more."""
        live = master.master
        known = [
            record
            for record in records
            if record.seq <= live._read_seq
            or (
                record.seq <= live._last_append
                and record.envelope.incarnation == master.incarnation
                and isinstance(record.envelope.event, Decided)
            )
        ]
        terms = [record.envelope.incarnation for record in known if isinstance(record.envelope.event, TermStarted)]
        if terms and master.incarnation in terms and terms[-1] != master.incarnation:
            return []
        try:
            replayed, problems = checked_fold(known)
        except InvariantError as error:
            return [f"an invariant of the master does not hold: {error}"]
        if replayed == live.state:
            return problems
        differing = [name for name in State.__slots__ if getattr(replayed, name) != getattr(live.state, name)]
        return [f"replaying the log of {master.incarnation} gives another state: {', '.join(differing)}"]

    def _count(self, world: World, placement: Placement, ps: PodName, manifest: str, covered: Counts) -> list[str]:
        spec = self._job.spec
        number = int(ps.rsplit("-", 1)[1])
        policy = UpdatePolicy.of(spec)
        core = PsCore(plan=spec.plan, placement=placement, number=number, policy=policy)
        try:
            chain = read_chain(world.store, manifest)
            shard = restore(world.store, core, chain)
        except ElasticDLError as error:
            return [f"the final snapshot of {ps} can't be read: {error}"]
        here = mask_of(shard.partitions)
        covered += here
        values = np.empty(shard.part.size, np.float32)
        shard.pull((), np.empty(0, np.float32), values)
        wrong = world.metric_oracle.wrong_sums(f"the final snapshot of {ps}", shard)
        if self._job.shape.catches_up:
            problems = wrong + self._absorbed(ps, values) + wrong_rows(self._job, ps, shard, self._planned)
            weights = gather_weights(world.store, policy, [(chain, ALL)])
            return problems + wrong_copies(ps, shard, weights, self.exported.get(ps))
        counts = self._counts(values)
        return wrong + self._dense(ps, counts) + wrong_sums(self._job, ps, counts, shard)

    def _absorbed(self, ps: PodName, values: Floats) -> list[str]:
        found = np.unique(self._counts(values)[:, -1]).tolist()
        if found == [self._planned]:
            return []
        return [f"{ps}: {found} statistics deltas of {self._planned} batches were added"]

    def _counts(self, values: Floats) -> Floats:
        """float32[partitions, batches + 1]: how often each batch was learned, and how many deltas were added."""
        batches = len(self._job.batches)
        partitions = values.size // (batches + 1)
        learned = values[: partitions * batches].reshape(partitions, batches)
        return np.concatenate([learned, values[partitions * batches :].reshape(partitions, 1)], axis=1)

    def _dense(self, name: str, counts: Floats) -> list[str]:
        """Each weight is the times that its batch was learned, over the batches of its update."""
        problems: list[str] = []
        for row in {row.tobytes(): row for row in counts}.values():
            problems += self._partition(name, row)
        return problems

    def _partition(self, name: str, counts: Floats) -> list[str]:
        if self._job.spec.synchronous:
            return self._rounds(name, counts)
        batches, wait = self._planned, self._job.spec.grads_to_wait
        absorbed = float(counts[-1])
        beyond = [number for number in range(batches, len(self._job.batches)) if counts[number]]
        learned = [number for number in range(batches) if not self._job.is_empty(number)]
        rest = len(learned) % wait
        problems = [f"{name}: batches {beyond} after the end of the plan were learned"] if beyond else []
        if absorbed != batches:
            problems.append(f"{name}: {absorbed:g} statistics deltas of {batches} batches were added")
        allowed = {1.0 / wait, 1.0 / rest} if rest else {1.0 / wait}
        for number, (task, batch) in enumerate(self._job.batches[:batches]):
            weight = float(counts[number])
            if number not in learned:
                if weight:
                    problems.append(f"{name}: the empty batch {task}.{batch} was learned")
            elif not any(abs(weight - one) < 1e-6 for one in allowed):
                problems.append(f"{name}: batch {task}.{batch} was learned {weight * wait:g} times")
        flushed = sum(1 for n in learned if rest and wait != rest and abs(counts[n] - 1.0 / rest) < 1e-6)
        if not problems and rest and flushed not in (rest,) and wait != rest:
            problems.append(f"{name}: {flushed} batches are in the last, smaller update, not {rest}")
        return problems

    def _rounds(self, name: str, counts: Floats) -> list[str]:
        """Synchronous training: each batch was learned once, in the mean of its round, weighted by records."""
        job = self._job
        problems = []
        if counts[-1] != self._planned:
            problems.append(f"{name}: {counts[-1]:g} statistics deltas of {self._planned} batches were added")
        for number, (task, batch) in enumerate(job.batches):
            expected = job.share_of_round(task, batch) if number < self._planned else 0.0
            if abs(float(counts[number]) - expected) > 1e-6:
                problems.append(f"{name}: batch {task}.{batch} was learned {counts[number]:g} times, not {expected:g}")
        return problems


def _evaluations(records: list[LogRecord]) -> dict[int, int]:
    """Evaluation -> the last record that its first decision knew of."""
    after: dict[int, int] = {}
    for record in records:
        event = record.envelope.event
        for command in event.commands if isinstance(event, Decided) else ():
            if isinstance(event, Decided) and isinstance(command, OpenPin):
                after.setdefault(command.evaluation, event.after_seq)
    return after


def _is_training(event: TaskFinished) -> bool:
    return event.task.purpose is Purpose.TRAIN


def _left_states(world: World) -> list[str]:
    """Workers that are killed may leave states that no event names; without faults none are left."""
    if world.is_undisturbed and world.broker.states.parts:
        return [f"stored metric states were not removed: {sorted(world.broker.states.parts)}"]
    return []


def _disorderly(world: World) -> list[str]:
    """No process obeys a master after it has obeyed that master's successor."""
    problems = []
    for process in (*world.launchers, *world.processes):
        for server in process.bus.signals.served:
            for earlier, later in itertools.pairwise(server.obeyed):
                if later < earlier:
                    problems.append(f"{process.incarnation} has obeyed term {later} after term {earlier}")
    return problems
