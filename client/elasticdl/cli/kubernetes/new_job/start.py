"""``elasticdl train``, ``evaluate`` and ``predict`` with ``--platform=kubernetes``: create the objects of a job."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.accepted import leaving_lines, report_job
from elasticdl.cli.kubernetes.checks import job_findings, refuse_problems, rights_named, setup_findings
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.lookup import connect
from elasticdl.cli.kubernetes.new_job.creation import create_job, objects_text, write_objects
from elasticdl.cli.kubernetes.new_job.model_files import collect
from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
from elasticdl.cli.kubernetes.new_job.source_job import find_source_job
from elasticdl.cli.kubernetes.new_job.training_job import create_training_job, training_job
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.job.kind_options import CommandFlags, TrainFlags
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP, Manifest
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.names import JobId, new_incarnation


def start(flags: CommandFlags, pods: KubernetesFlags, started_s: float, job: JobId | None = None) -> int:
    """Run the command. Raises ``ElasticDLError``: the job can't be created. Nothing is left behind.

    Args:
        job: its id, if its storage has something already; None: a new one.
    """
    identity = Identity(run=new_incarnation(), token=secrets.token_hex(16), created_s=started_s, job=job)
    if pods.trainingjob:
        return _start_training_job(flags, pods, identity)
    if pods.yaml:
        api = _connect_if_possible(pods.namespace)
        defaults = namespace_defaults(api) if api else {}
        find_source = partial(find_source_job, api, defaults=defaults) if api else None
        namespace = api.namespace if api else pods.namespace or "default"
        first, *belongings = plan_job(flags, pods, defaults, identity, find_source).all(namespace)
        _write([*belongings, first], pods.yaml)  # In this order, the pod of the Job finds what it mounts.
        return exit_codes.SUCCESS
    api = connect(pods.namespace)
    with rights_named(api):
        refuse_problems(setup_findings(api))
        defaults = namespace_defaults(api)
        manifest = plan_job(flags, pods, defaults, identity, partial(find_source_job, api, defaults=defaults))
        refuse_problems(job_findings(api, manifest))
        if isinstance(flags, TrainFlags) and flags.dry_run:
            for each in manifest.all(api.namespace):
                api.create(each, dry_run=True)
            plain_console().print("The API server accepts the objects of the job. Nothing was created.")
            return exit_codes.SUCCESS
        create_job(api, manifest)
    # What follows a job is imported while Kubernetes starts its first pods.
    from elasticdl.cli.kubernetes.new_job.following import follow

    created = KubernetesJobHandle(api, manifest.settings.job, is_default=not pods.namespace)
    console = plain_console()
    console.print(f"Created job {created.job} in namespace {api.namespace}.")
    report_job(created.job)
    if flags.detach:
        console.print(leaving_lines(created.arguments))
        return exit_codes.SUCCESS
    console.print("Ctrl-C leaves it running.")
    return follow(created, image_pull_s=pods.image_pull_deadline_secs)


def _start_training_job(flags: CommandFlags, pods: KubernetesFlags, identity: Identity) -> int:
    """Print or create a TrainingJob, after the checks of the job that it asks for."""
    prints = pods.trainingjob == "print"
    api = _connect_if_possible(pods.namespace) if prints else connect(pods.namespace)
    defaults = namespace_defaults(api) if api else {}
    plan_job(flags, pods, defaults, identity, partial(find_source_job, api, defaults=defaults) if api else None)
    model = collect(flags.model_def, flags.model_zoo, flags.custom_data_reader)
    if prints or api is None:
        plain_console().print(objects_text([training_job(flags, pods, model, pods.namespace)]), end="")
        return exit_codes.SUCCESS
    manifest = training_job(flags, pods, model, api.namespace)
    is_dry = isinstance(flags, TrainFlags) and flags.dry_run
    create_training_job(api, manifest, dry_run=is_dry)
    name, end = manifest["metadata"]["name"], f"in namespace {api.namespace}."
    if is_dry:
        plain_console().print(f"The API server accepts TrainingJob {name} {end} Nothing was created.")
        return exit_codes.SUCCESS
    plain_console().print(f"Created TrainingJob {name} {end} See it: kubectl get tj {name} --namespace={api.namespace}")
    return exit_codes.SUCCESS


def namespace_defaults(api: KubernetesApi) -> Mapping[str, str]:
    """The content of the ConfigMap ``elasticdl`` of a namespace; empty if absent."""
    found = api.find(CONFIG_MAP, NAMESPACE_OBJECT) or {}
    return found.get("data") or {}


def _connect_if_possible(namespace: str) -> KubernetesApi | None:
    """The cluster whose defaults apply; None without a kubeconfig."""
    try:
        return connect(namespace)
    except UserError:
        return None


def _write(objects: Sequence[Manifest], file: str) -> None:
    if file == "-":
        plain_console().print(objects_text(objects), end="")
        return
    with file_errors(f"--yaml={file} can't be written", usage=True):
        write_objects(objects, Path(file))
