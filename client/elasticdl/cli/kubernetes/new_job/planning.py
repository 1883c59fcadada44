"""From the flags of a command with ``--platform=kubernetes`` to the objects of a job. Asks no server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.cli.kubernetes.manifests.job_objects import JobManifest, secret_variables
from elasticdl.cli.kubernetes.manifests.patches import check_patches
from elasticdl.cli.kubernetes.manifests.resources import parse_resources
from elasticdl.cli.kubernetes.manifests.templates import TEMPORARY, USER_ID, JobSettings, PodSettings
from elasticdl.cli.kubernetes.manifests.volumes import Volumes, parse_volumes
from elasticdl.cli.kubernetes.new_job.model_files import ModelFiles, collect
from elasticdl.cli.kubernetes.submission_file import SourceJob, SubmissionFile
from elasticdl.cli.submission.flag_items import data_cache, envs_text, parse_envs, split_secrets
from elasticdl.cli.submission.seed import seed_of, with_seed
from elasticdl.shared.data.discovery import split_paths
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import PATH_FLAGS, JobFlags
from elasticdl.shared.job.kind_options import CommandFlags, TrainFlags
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT, PRIORITY_HIGH, PRIORITY_LOW
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.quantities import amount
from elasticdl.shared.kubernetes.templates import WorkerPriority
from elasticdl.shared.names import Incarnation, JobId, Service, job_name, new_job_id
from elasticdl.shared.words import listed

F = TypeVar("F", bound=JobFlags)
_CACHE_SHARE = 0.5
"""Share of a worker's disk that the data cache may take."""
_SHARE = re.compile(r"(?:high=)?(\d*\.?\d+)")
_LABEL = re.compile(r"([-A-Za-z0-9_./]+)=([-A-Za-z0-9_.]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What is random about a job; ``job``: its id; None: made from its name."""

    run: Incarnation
    token: str
    created_s: float
    job: JobId | None = None


def plan_job(
    flags: CommandFlags,
    pods: KubernetesFlags,
    defaults: Mapping[str, str],
    identity: Identity,
    find_source: Callable[[str], SourceJob] | None = None,
) -> JobManifest:
    """Check the flags as far as that is possible without the cluster, and plan the objects of a new job.

    Args:
        defaults: content of the namespace's ConfigMap ``elasticdl``.
        find_source: finds the job that a flag names; None: the cluster is not known.
    """
    volumes = parse_volumes(pods.volume)
    model = collect(flags.model_def, flags.model_zoo, flags.custom_data_reader)
    flags = _with_places(with_seed(flags), defaults, volumes)
    if not model.reader:
        _check_data_places(flags, volumes)
    master, worker, ps, priority = _pods(pods, defaults)
    run_as = pods.run_as_user or defaults.get("run_as_user", "")
    flags = _with_data_cache(flags, worker, volumes)
    job = identity.job or new_job_id(flags.job_name or job_name(f"{model.name}{flags.kind.name_suffix}"))
    envs, secrets = split_secrets(parse_envs(flags.envs))
    submitted = replace(flags, model_def=model.model_def, model_zoo="", envs=envs_text(envs))
    submission = SubmissionFile(
        job=job,
        run=identity.run,
        created_s=identity.created_s,
        flags=submitted,
        source=_source(flags, volumes, find_source),
    )
    has_spares = isinstance(flags, TrainFlags) and flags.spare_workers > 0
    return JobManifest(
        settings=_settings(submitted, replace(pods, run_as_user=run_as), model, job, identity.run, volumes),
        master=master,
        worker=worker,
        ps=ps,
        workers=flags.num_workers,
        ps_pods=flags.processes - flags.num_workers,
        worker_priority=priority,
        spare_priority=defaults.get("priority_class_spare", "") if has_spares else "",
        image_pull_s=pods.image_pull_deadline_secs,
        submission=submission.to_json(),
        model=model.contents,
        secrets={**secrets, **secret_variables(identity.token, flags.nats_url)},
        keep_finished_s=pods.keep_finished,
    )


def images_of(defaults: Mapping[str, str], image_name: str) -> dict[Service, str]:
    """The images of a namespace's jobs."""
    worker = image_name or defaults.get("image_name", "")
    if not worker:
        raise UserError(
            f"--image_name is not given, and ConfigMap {NAMESPACE_OBJECT} of the namespace has no image_name",
            usage=True,
        )
    return {
        Service.MASTER: defaults.get("master_image", "") or worker,
        Service.PS: defaults.get("ps_image", "") or worker,
        Service.WORKER: worker,
    }


def _pods(
    pods: KubernetesFlags, defaults: Mapping[str, str]
) -> tuple[PodSettings, PodSettings, PodSettings, WorkerPriority | None]:
    """The pods of master, worker and ps, and the priority of the workers if that differs from pod to pod."""
    high, low = defaults.get("priority_class_high", ""), defaults.get("priority_class_low", "")
    worker_priority = _worker_priority(pods.worker_pod_priority, high or PRIORITY_HIGH, low or PRIORITY_LOW)
    images = images_of(defaults, pods.image_name)
    own_images = {Service.MASTER: pods.master_image, Service.PS: pods.ps_image}

    def settings(service: Service, priority_class: str) -> PodSettings:
        asked = (getattr(pods, f"{service.value}_resource_{each}") for each in ("request", "limit"))
        return PodSettings(
            service=service,
            image=own_images.get(service) or images[service],
            resources=parse_resources(service.value, *asked),
            priority_class=priority_class,
        )

    master = settings(Service.MASTER, pods.master_pod_priority or high)
    worker = settings(Service.WORKER, "" if worker_priority else pods.worker_pod_priority or low)
    return master, worker, settings(Service.PS, pods.ps_pod_priority or high), worker_priority


def _settings(
    flags: CommandFlags, pods: KubernetesFlags, model: ModelFiles, job: JobId, run: Incarnation, volumes: Volumes
) -> JobSettings:
    return JobSettings(
        job=job,
        run=run,
        seed=seed_of(flags),
        log_level=flags.log_level,
        envs=parse_envs(flags.envs),
        model_files=model.keys,
        volumes=volumes,
        pull_policy=pods.image_pull_policy or "",
        pull_secrets=list(listed(pods.image_pull_secrets)),
        node_selector=parse_labels(pods.node_selector),
        service_account=pods.service_account_name,
        user=parse_user(pods.run_as_user),
        patches=read_patches(pods.cluster_spec) if pods.cluster_spec else {},
    )


def _with_places(flags: F, defaults: Mapping[str, str], volumes: Volumes) -> F:
    """The flags with a storage; refuses places that pods can't reach."""
    if not flags.storage and not flags.checkpoint_dir:
        flags = replace(flags, storage=defaults.get("storage", ""))
    places = {name: getattr(flags, name, "") for name in ("storage", "checkpoint_dir", "output", "tensorboard_log_dir")}
    if not flags.storage and not flags.checkpoint_dir:
        raise UserError(
            f"--storage is not given, and ConfigMap {NAMESPACE_OBJECT} of the namespace has no storage",
            hint="Give --storage=s3://BUCKET/PREFIX.",
            usage=True,
        )
    for name, place in places.items():
        if place and "://" not in place and not volumes.contains(place):
            raise UserError(
                f"--{name}={place} is not in a volume of the pods, so it would be lost with them",
                hint="Give s3://BUCKET/PREFIX, or mount a volume with --volume.",
                usage=True,
            )
    return flags


def _with_data_cache(flags: F, worker: PodSettings, volumes: Volumes) -> F:
    """The flags with a data cache that fits on the disk of the workers' pods, where it is not in a volume."""
    folder = flags.data_cache_dir
    if volumes.contains(folder):
        return flags
    if folder and not folder.startswith(f"{TEMPORARY}/"):
        raise UserError(
            f"--data_cache_dir={folder} is not in a volume of the pods, and their other files can't be written",
            hint=f"Mount a volume with --volume, or give a folder in {TEMPORARY}.",
            usage=True,
        )
    disk, size = worker.resources.limits.get("ephemeral-storage"), data_cache(flags)["data_cache_bytes"]
    if disk is None:
        return flags
    # A pod that uses more than its limit is evicted, and logs and the user's files are counted too.
    return replace(flags, data_cache_size=str(min(size, int(amount(disk) * _CACHE_SHARE))))


def _check_data_places(flags: CommandFlags, volumes: Volumes) -> None:
    """Refuse data that pods can't reach."""
    for name in PATH_FLAGS:
        for path in split_paths(given) if (given := getattr(flags, name, "")) else ():
            is_local = not path.startswith("/") or (Path(path).exists() and not volumes.contains(path))
            if "://" not in path and is_local:
                raise UserError(
                    f"--{name}={path} is on this machine, where pods can't read it",
                    hint=f"Upload it: elasticdl data put {path} s3://BUCKET/PREFIX. Or mount a volume with --volume.",
                    usage=True,
                )


def _source(flags: CommandFlags, volumes: Volumes, find_source: Callable[[str], SourceJob] | None) -> SourceJob | None:
    """The job whose model is used; None: it is in a file that pods can read, or there is none.

    A name means a job, whatever this machine has, because pods can't read its files.
    """
    name, given = ("initial_model", flags.initial_model) if isinstance(flags, TrainFlags) else ("model", flags.source)
    if not given or "://" in given or volumes.contains(given):
        return None
    if given.startswith("/") and not Path(given).exists():
        return None  # It is in the image.
    if "/" in given or Path(given).suffix:
        raise UserError(
            f"--{name}={given} is on this machine, where pods can't read it",
            hint=f"Upload it: elasticdl data put {given} s3://BUCKET/PREFIX. Or give the name of a job.",
            usage=True,
        )
    if find_source is None:
        raise UserError(f"--{name}={given} names a job, and there is no kubeconfig to find it", usage=True)
    return find_source(given)


def _worker_priority(text: str, high: str, low: str) -> WorkerPriority | None:
    """``high=0.5`` or ``0.5``; None: another value."""
    share = share_of(text)
    return None if share is None else WorkerPriority(high=high, low=low, high_share=share)


def share_of(text: str) -> float | None:
    """The share of ``--worker_pod_priority=high=0.5``; None: another value."""
    match = _SHARE.fullmatch(text)
    if match is None:
        if "=" in text:
            raise UserError(f"--worker_pod_priority={text} is neither a PriorityClass nor high=SHARE", usage=True)
        return None
    share = float(match[1])
    if share > 1:
        raise UserError(f"--worker_pod_priority={text}: the share is not between 0 and 1", usage=True)
    return share


def parse_user(text: str) -> int | None:
    """A user id; None: ``none``, the cluster chooses it."""
    if text in ("", "none"):
        return None if text else USER_ID
    if not text.isdecimal() or int(text) == 0:
        raise UserError(f"--run_as_user={text} is neither the id of a user other than root nor none", usage=True)
    return int(text)


def parse_labels(text: str) -> dict[str, str]:
    """The items of ``--node_selector``."""
    found = {}
    for item in listed(text):
        match = _LABEL.fullmatch(item)
        if match is None:
            raise UserError(f"--node_selector: {item!r} is not of the form NAME=VALUE", usage=True)
        found[match[1]] = match[2]
    return found


def read_patches(file: Path) -> dict[str, dict[str, Any]]:
    """The patches of ``--cluster_spec``, by section."""
    import yaml  # Comes with the package kubernetes; JSON is YAML, too.

    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"--cluster_spec={file} can't be read: {error}", usage=True) from error
    return check_patches(str(file), content)
