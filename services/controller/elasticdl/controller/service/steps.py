"""Does what is to be done for a TrainingJob, with the code that the command line uses.

What creates and resumes jobs is imported when it is needed first, or by ``warm_up``: it takes seconds of CPU, and a
controller that has just started must decide before that.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.controller.service.lifecycle import Case, Create, Discard, Resume, Scale, Step, Stop, Suspend, job_id
from elasticdl.controller.service.observing import created_s
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.job.kind_options import CommandFlags
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP, JOB, SECRET, Kind
from elasticdl.shared.kubernetes.names import SUSPENDED
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
from elasticdl.shared.messages.events import ScaleRequested, StopRequested
from elasticdl.shared.names import Service, new_incarnation, pod_name

if TYPE_CHECKING:
    from elasticdl.cli.kubernetes.handle import KubernetesJobHandle


def execute(api: KubernetesApi, case: Case, step: Step) -> None:
    """Take a step. One that was taken before, by this controller or another one, changes nothing.

    Raises:
        ElasticDLError: it was refused, or a server does not answer.
    """
    api = api.in_namespace(case.manifest["metadata"]["namespace"])
    match step:
        case Create(workers=workers, ps=ps):
            _create(api, case, workers, ps)
        case Scale(workers=workers, ps=ps, leaving=numbers):
            leaving = tuple(pod_name(Service.WORKER, number) for number in numbers)
            _ask(api, case, ScaleRequested(workers=workers, ps=ps, leaving=leaving))
        case Suspend(reason=reason):
            # The note first: without it, a job that has stopped would have ended for good.
            api.patch(JOB, job_id(case.manifest), {"metadata": {"annotations": {SUSPENDED: reason}}})
            _ask(api, case, StopRequested(reason=reason))
        case Stop(reason=reason):
            _ask(api, case, StopRequested(reason=reason))
        case Resume(ps=ps):
            from elasticdl.cli.jobs.resume_changes import ResumeChanges
            from elasticdl.cli.kubernetes.ended_jobs.resume import create_next_run

            create_next_run(handle_of(api, case), ResumeChanges(ps=ps))
        case Discard():
            # Kubernetes removes what belongs to the Job, but some time later, and the next creation uses these names.
            for kind in (JOB, CONFIG_MAP, SECRET):
                _delete(api, kind, job_id(case.manifest))


def warm_up() -> None:
    """Import what creates and resumes jobs."""
    import elasticdl.cli.kubernetes.ended_jobs.resume
    import elasticdl.cli.kubernetes.new_job.creation
    import elasticdl.cli.kubernetes.new_job.planning  # noqa: F401


def _ask(api: KubernetesApi, case: Case, event: ScaleRequested | StopRequested) -> None:
    from elasticdl.cli.jobs.requests import request

    asyncio.run(request(handle_of(api, case), event))


def handle_of(api: KubernetesApi, case: Case) -> KubernetesJobHandle:
    """The job of a TrainingJob, as commands see it."""
    from elasticdl.cli.kubernetes.handle import KubernetesJobHandle

    own = api.in_namespace(case.manifest["metadata"]["namespace"])
    return KubernetesJobHandle(own, job_id(case.manifest), is_default=False)


def _create(api: KubernetesApi, case: Case, workers: int, ps: int) -> None:
    from elasticdl.cli.kubernetes.new_job.creation import create_job
    from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
    from elasticdl.cli.kubernetes.new_job.source_job import find_source_job
    from elasticdl.cli.kubernetes.new_job.start import namespace_defaults

    if case.spec is None:
        raise InvariantError(f"TrainingJob {case.key} is invalid and starts")
    identity = Identity(
        run=new_incarnation(),
        token=secrets.token_hex(16),
        created_s=created_s(case.manifest),
        job=job_id(case.manifest),
    )
    defaults = namespace_defaults(api)
    with _files(case.spec, workers, ps) as (flags, pods):
        manifest = plan_job(flags, pods, defaults, identity, partial(find_source_job, api, defaults=defaults))
    try:
        create_job(api, replace(manifest, training_job=case.manifest))
    except ApiRefusedError as refusal:
        if not refusal.already_exists or api.find(JOB, job_id(case.manifest)) is None:
            raise


def _delete(api: KubernetesApi, kind: Kind, name: str) -> None:
    try:
        api.delete(kind, name)
    except ApiRefusedError as refusal:
        if not refusal.is_not_found:
            raise


@contextmanager
def _files(spec: TrainingJobSpec, workers: int, ps: int) -> Iterator[tuple[CommandFlags, KubernetesFlags]]:
    """The flags of the command that would create the job, with files for what they name."""
    flags, pods = spec.flags_for(workers, ps), spec.pods
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in spec.model_files.items():
            file = folder / "model" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if spec.model_files:
            flags = replace(flags, model_def=str(folder / "model" / flags.model_def))
        patches = folder / "patches.yaml"
        if spec.patches:
            patches.write_text(json.dumps(spec.patches))
            pods = replace(pods, cluster_spec=patches)
        try:
            yield flags, pods
        except UserError as error:  # Its author knows the files, and no folder of the controller.
            raise UserError(str(error).replace(f"{folder}/model/", "").replace(f"{patches}", "podTemplate")) from error
