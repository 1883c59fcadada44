"""Pod templates of master, workers and parameter servers: what the flags determine.

All of them fulfil the Pod Security Standard ``restricted``. The master adds to the templates of workers and ps what
their processes and its platform need: names, labels, owner, priority class, and the settings of the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.cli.kubernetes.manifests.patches import patched
from elasticdl.cli.kubernetes.manifests.resources import Resources
from elasticdl.cli.kubernetes.manifests.volumes import Volumes
from elasticdl.cli.local.processes.imports import import_constants, import_defaults
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import (
    JOB_FOLDER,
    MODEL_FOLDER,
    NAMESPACE_OBJECT,
    PODS_FILE,
    PREPARE_CONTAINER,
    SUBMIT_CONTAINER,
)
from elasticdl.shared.kubernetes.quantities import amount
from elasticdl.shared.names import Incarnation, JobId, Service
from elasticdl.shared.process.settings import variable

USER_ID = 65532
"""User and group of all processes by default; the images' user."""
GRACE_S = 60
"""Seconds from SIGTERM to SIGKILL: a worker finishes its batch, and a ps saves a snapshot."""
LOST_S = 30
"""Seconds after which Kubernetes replaces the master of a node that does not answer; by default it waits for 300."""
_LOST_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTS = "NoExecute"
TEMPORARY = "/tmp"  # noqa: S108 - a volume of the pod
TOKEN_VOLUME = "api-access"  # noqa: S105 - a volume of the pod
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where clients look for it
_TOKEN_S = 3607
"""Seconds that a token is valid, as in tokens that Kubernetes mounts; the kubelet renews it."""
_JOB_VOLUME, _MODEL_VOLUME, _TEMPORARY_VOLUME = "job", "model", "temporary"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the pods of one service are made of; an empty ``priority_class``: the cluster's default."""

    service: Service
    image: str
    resources: Resources
    priority_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What all pods of a job have in common.

    Attributes:
        job: the job's id, and the name of its ConfigMap and its Secret.
        model_files: key in the ConfigMap -> path below ``MODEL_FOLDER``.
        pull_policy: of all images; empty: the default of Kubernetes.
    """

    job: JobId
    run: Incarnation
    seed: int
    log_level: str
    envs: Mapping[str, str] = field(default_factory=dict)
    model_files: Mapping[str, str] = field(default_factory=dict)
    volumes: Volumes = field(default_factory=Volumes)
    pull_policy: str = ""
    pull_secrets: Sequence[str] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    user: int | None = USER_ID
    patches: Mapping[str, Manifest] = field(default_factory=dict)


def master_template(job: JobSettings, master: PodSettings, worker: PodSettings) -> Manifest:
    """The pod of the Job: ``prepare`` checks, ``submit`` plans the job in the workers' image, then ``master`` runs it.

    ``submit`` runs the code of the model file, so only the other two containers have the token of the service account.
    ``submit`` asks for no more than the master does, because Kubernetes reserves the larger request as long as the pod
    runs. It may use as much as a worker.
    """
    own = {
        variable("job"): job.job,
        variable("run"): job.run,
        variable("pod"): "master",
        variable("log_level"): job.log_level,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    limits = {name: text for name, text in worker.resources.limits.items() if "/" not in name}
    may_use = Resources(requests=master.resources.requests, limits=_larger(master.resources.limits, limits))
    submit = _container(
        job,
        SUBMIT_CONTAINER,
        "elasticdl.cli.kubernetes.submit_container",
        PodSettings(service=Service.MASTER, image=worker.image, resources=may_use),
    )
    submit["env"] = _env({**_imports(job, may_use), **job.envs, **own})
    prepare = _container(
        job,
        PREPARE_CONTAINER,
        "elasticdl.cli.kubernetes.prepare",
        PodSettings(service=Service.MASTER, image=worker.image, resources=may_use),
    )
    prepare["env"] = _env({**own, "HOME": TEMPORARY})
    prepare["volumeMounts"] += [_mount(_JOB_VOLUME, JOB_FOLDER), _mount(TOKEN_VOLUME, _TOKEN_FOLDER)]
    submit["volumeMounts"] += [_mount(_JOB_VOLUME, JOB_FOLDER), _mount(_MODEL_VOLUME, MODEL_FOLDER)]
    container = _container(job, "master", "elasticdl.master.container", master)
    container["env"] = _env({**own, variable("pod_templates"): f"{JOB_FOLDER}/{PODS_FILE}"})
    container["volumeMounts"] += [_mount(_JOB_VOLUME, JOB_FOLDER), _mount(TOKEN_VOLUME, _TOKEN_FOLDER)]
    spec = _pod(job, master, container)
    spec |= {
        "initContainers": [prepare, submit],
        "serviceAccountName": job.service_account,
        "automountServiceAccountToken": False,  # It would be in every container.
    }
    spec["volumes"] += [{"name": _JOB_VOLUME, "configMap": {"name": job.job}}, _model_volume(job), _token_volume()]
    return _leaving_lost_nodes(_patched(job, master, spec))


def _leaving_lost_nodes(template: Manifest) -> Manifest:
    """A pod template that leaves a lost node soon, unless its tolerations say something else."""
    given = template["spec"].get("tolerations") or []
    added = [
        {"key": taint, "operator": "Exists", "effect": _EVICTS, "tolerationSeconds": LOST_S}
        for taint in _LOST_TAINTS
        if not any(each.get("key", taint) == taint and each.get("effect", _EVICTS) == _EVICTS for each in given)
    ]
    return {**template, "spec": {**template["spec"], "tolerations": [*given, *added]}}


def service_template(job: JobSettings, pod: PodSettings) -> Manifest:
    """The template of workers or ps; the name of the container is that of the service."""
    container = _container(job, pod.service, f"elasticdl.{pod.service}.main", pod)
    settings = {variable("log_level"): job.log_level}
    spec = _pod(job, pod, container)
    if pod.service == "worker":
        settings[variable("compute_threads")] = str(pod.resources.threads)
        if pod.resources.gpus:
            settings[variable("gpus")] = str(pod.resources.gpus)
        container["volumeMounts"] += [_mount(_MODEL_VOLUME, MODEL_FOLDER)]
        spec["volumes"] += [_model_volume(job)]
    container["env"] = _env({**_imports(job, pod.resources), **settings, **job.envs})
    return _patched(job, pod, spec)


def _imports(job: JobSettings, resources: Resources) -> dict[str, str]:
    """What imports read. TensorFlow takes GPU memory as it needs it, so that other processes can use the same GPU."""
    growth = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if resources.gpus else {}
    defaults = import_defaults(resources.threads, hides_gpus=not resources.gpus)
    return {**defaults, **growth, "HOME": TEMPORARY, **import_constants(job.seed)}


def bare_container(name: str, arguments: Sequence[str], pod: PodSettings, *, secrets: Sequence[str] = ()) -> Manifest:
    """A container with the variables of the namespace's Secret, and with a folder for temporary files."""
    return {
        "name": name,
        "image": pod.image,
        "args": list(arguments),
        "workingDir": TEMPORARY,
        "envFrom": [{"secretRef": {"name": secret}} for secret in (NAMESPACE_OBJECT, *secrets)],
        "resources": pod.resources.manifest(),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _TEMPORARY_VOLUME, "mountPath": TEMPORARY}],
    }


def bare_pod(container: Manifest, pull_secrets: Sequence[str] = (), user: int | None = USER_ID) -> Manifest:
    """A pod of the Pod Security Standard ``restricted`` that is not started again.

    Args:
        user: user and group of its processes; None: the cluster chooses them, as OpenShift does.
    """
    ids = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            **ids,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": _TEMPORARY_VOLUME, "emptyDir": {}}],
    }
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    return spec


def _pod(job: JobSettings, pod: PodSettings, container: Manifest) -> Manifest:
    spec = bare_pod(container, job.pull_secrets, job.user)
    spec["volumes"] += job.volumes.volumes
    if job.node_selector:
        spec["nodeSelector"] = dict(job.node_selector)
    if pod.priority_class:
        spec["priorityClassName"] = pod.priority_class
    return spec


def _container(job: JobSettings, name: str, module: str, pod: PodSettings) -> Manifest:
    container = bare_container(name, ["-P", "-m", module], pod, secrets=(job.job,))
    container["volumeMounts"] += job.volumes.mounts
    if job.pull_policy:
        container["imagePullPolicy"] = job.pull_policy
    return container


def _patched(job: JobSettings, pod: PodSettings, spec: Manifest) -> Manifest:
    return patched({"metadata": {}, "spec": spec}, pod.service, job.patches)


def _model_volume(job: JobSettings) -> Manifest:
    items = [{"key": key, "path": path} for key, path in job.model_files.items()]
    # A list without items would mount all keys.
    source: Manifest = {"configMap": {"name": job.job, "items": items}} if items else {"emptyDir": {}}
    return {"name": _MODEL_VOLUME, **source}


def _token_volume() -> Manifest:
    """What Kubernetes mounts into every container of a pod with ``automountServiceAccountToken``."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources: list[Manifest] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": TOKEN_VOLUME, "projected": {"sources": sources}}


def _mount(volume: str, path: str) -> Manifest:
    return {"name": volume, "mountPath": path, "readOnly": True}


def _env(variables: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _larger(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """The larger of two limits of each resource."""
    return {
        name: max((limits[name] for limits in (one, other) if name in limits), key=amount) for name in {**one, **other}
    }
