"""``--trainingjob``: the command as an object that a controller starts, in place of the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.cli.kubernetes.manifests.patches import ALL
from elasticdl.cli.kubernetes.manifests.resources import parse_resources
from elasticdl.cli.kubernetes.manifests.volumes import volume_items
from elasticdl.cli.kubernetes.new_job.model_files import ModelFiles
from elasticdl.cli.kubernetes.new_job.planning import parse_labels, read_patches, share_of
from elasticdl.cli.submission.flag_items import parse_envs, split_secrets
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import CommandFlags, TrainFlags
from elasticdl.shared.job.options import plain_values
from elasticdl.shared.job.spec import Strategy
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import TRAINING_JOB, Manifest
from elasticdl.shared.kubernetes.names import MODEL_FOLDER, NAMESPACE_OBJECT
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
from elasticdl.shared.kubernetes.training_job.job_schema import ALIASES, NO_JOB_OPTIONS, is_switch, options_of
from elasticdl.shared.kubernetes.training_job.spec import ROLES, VOLUME_KEYS
from elasticdl.shared.names import job_name
from elasticdl.shared.process.settings import variable
from elasticdl.shared.words import listed

_SWITCHES = {"readOnly"}
_RENAMED = {
    "image": "image_name",
    "imagePullPolicy": "image_pull_policy",
    "imagePullDeadlineSeconds": "image_pull_deadline_secs",
    "serviceAccountName": "service_account_name",
    "ttlSecondsAfterFinished": "keep_finished",
    "runAsUser": "run_as_user",
}
"""Field of ``spec`` -> the option of pods that it is."""


def training_job(flags: CommandFlags, pods: KubernetesFlags, model: ModelFiles, namespace: str) -> Manifest:
    """The TrainingJob that asks for what a command line does: ``TrainingJobSpec.from_manifest`` is the inverse.

    The job may have 1 to ``--num_workers`` workers. Fields that have their defaults are left out.

    Raises:
        UserError: an object can't contain an option, or the model.
    """
    _refuse_secrets(flags)
    _refuse_spares(flags)
    name = flags.job_name or job_name(f"{model.name}{flags.kind.name_suffix}")
    spec = {
        "kind": flags.kind.value,
        "job": _job(flags, model),
        **_roles(flags, pods),
        **_pod_fields(pods),
        "model": {"files": _model_texts(model)} if model.contents else {},
    }
    manifest = {
        "apiVersion": TRAINING_JOB.api_version,
        "kind": TRAINING_JOB.name,
        "metadata": {"name": name, "namespace": namespace} if namespace else {"name": name},
        "spec": {field: value for field, value in spec.items() if value not in ("", {}, [])},
    }
    TrainingJobSpec.from_manifest(manifest)
    return manifest


def create_training_job(api: KubernetesApi, manifest: Manifest, *, dry_run: bool = False) -> None:
    """Create the object.

    Raises:
        UserError: the cluster has no such resource, or there is an object of this name.
        TransientError, PermanentError: the API server can't be reached, or refuses.
    """
    name = manifest["metadata"]["name"]
    try:
        api.create(manifest, dry_run=dry_run)
    except ApiRefusedError as refusal:
        if refusal.is_not_found:
            raise UserError(
                f"the cluster of {api.server} has no TrainingJobs",
                hint="An administrator installs them: kubectl apply -k deploy/kustomize/controller",
            ) from refusal
        if refusal.already_exists:
            raise UserError(
                f"namespace {api.namespace} has a TrainingJob {name} already",
                hint="Give another name with --job_name, or delete it: "
                f"kubectl delete trainingjob {name} --namespace={api.namespace}",
            ) from refusal
        raise


def _refuse_secrets(flags: CommandFlags) -> None:
    _, secrets = split_secrets(parse_envs(flags.envs))
    found = {f"the variable {each} of --envs": each for each in secrets}
    if flags.nats_url:
        found["--nats_url"] = variable("nats_url")
    for what, name in found.items():
        raise UserError(
            f"{what} may be a secret, and everybody who may read a TrainingJob would see it",
            hint=f"Put {name} into the Secret {NAMESPACE_OBJECT} of the namespace.",
            usage=True,
        )


def _refuse_spares(flags: CommandFlags) -> None:
    if isinstance(flags, TrainFlags) and flags.spare_workers:
        raise UserError(
            f"--spare_workers={flags.spare_workers} can't be combined with --trainingjob",
            hint="Leave one of them out: the controller of TrainingJobs counts no spares.",
            usage=True,
        )


def _job(flags: CommandFlags, model: ModelFiles) -> dict[str, Any]:
    options = options_of(flags.kind)
    values = {ALIASES.get(name, name): value for name, value in plain_values(flags).items()}
    values["model_def"] = model.model_def.removeprefix(f"{MODEL_FOLDER}/")
    return {
        name: value == "true" if is_switch(options[name]) else value
        for name, value in values.items()
        if name not in NO_JOB_OPTIONS
    }


def _model_texts(model: ModelFiles) -> dict[str, str]:
    try:
        return {name: content.decode() for name, content in model.contents.items()}
    except UnicodeDecodeError as error:
        raise UserError(
            "a TrainingJob contains the model as text, and this model has weights",
            hint="Write a model file that makes it. If the weights matter, save the model as a .keras file in object "
            "storage, and give its address as initial_model.",
        ) from error


def _pod_fields(pods: KubernetesFlags) -> dict[str, Any]:
    given = plain_values(pods)
    found = {field: given[option] for field, option in _RENAMED.items() if option in given}
    return found | {
        "imagePullSecrets": [{"name": each} for each in listed(pods.image_pull_secrets)],
        "volumes": [_volume(facts) for facts in volume_items(pods.volume)],
        "nodeSelector": parse_labels(pods.node_selector),
        "podTemplate": _patches(pods).get(ALL, {}),
    }


def _volume(facts: Mapping[str, str]) -> dict[str, Any]:
    found = {field: facts[key] for field, key in VOLUME_KEYS.items() if key in facts}
    return {field: value == "true" if field in _SWITCHES else value for field, value in found.items()}


def _patches(pods: KubernetesFlags) -> dict[str, dict[str, Any]]:
    return read_patches(pods.cluster_spec) if pods.cluster_spec else {}


def _roles(flags: CommandFlags, pods: KubernetesFlags) -> dict[str, dict[str, Any]]:
    counts: dict[str, dict[str, Any]] = {
        "master": {"image": pods.master_image},
        "worker": {"min": 1, "max": flags.num_workers},
        "ps": {"min": flags.ps_pods, "max": flags.ps_pods, "image": pods.ps_image},
    }
    found = {}
    has_ring = isinstance(flags, TrainFlags) and flags.strategy is Strategy.ALLREDUCE
    for role in (each for each in ROLES if each != "ps" or not has_ring):
        values = counts[role] | _resources(pods, role)
        priority = getattr(pods, f"{role}_pod_priority")
        share = share_of(priority) if role == "worker" else None
        values |= {"priorityClassName": priority} if share is None else {"highPriorityShare": share}
        values["podTemplate"] = _patches(pods).get(role, {})
        found[role] = {field: value for field, value in values.items() if value not in ("", {})}
    return found


def _resources(pods: KubernetesFlags, role: str) -> dict[str, Any]:
    """The field ``resources`` of a role, if it has not the default."""
    names = [f"{role}_resource_request", f"{role}_resource_limit"]
    if not any(name in pods.given for name in names):
        return {}
    parsed = parse_resources(role, *(getattr(pods, name) for name in names))
    limits = {name: text for name, text in parsed.limits.items() if text != parsed.requests.get(name)}
    requests = {"requests": dict(parsed.requests)}
    return {"resources": requests | ({"limits": limits} if limits else {})}
