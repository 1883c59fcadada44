"""``elasticdl trainingjob convert``: from a TrainingJob of PaddlePaddle EDL (2017 to 2020) to one of today."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticdl.cli.kubernetes.new_job.creation import objects_text
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.kubernetes.kinds import TRAINING_JOB, Manifest
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec

FORMER_VERSION = "paddlepaddle.org/v1"
PLACE = "s3://BUCKET/PREFIX"
_ROLES = {"master": "master", "trainer": "worker", "pserver": "ps"}
_KEPT_METADATA = ("name", "namespace", "labels", "annotations")
_FORMER_GPU, _GPU = "alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"
_PORTS = "processes choose their ports and tell them to each other"
_NETWORK = "pods use the network of the cluster"
_ETCD = "the event log of the job, on NATS JetStream, replaces etcd"
_NO_MEANING: Mapping[str, str] = {
    "port": _PORTS,
    "ports_num": _PORTS,
    "ports_num_for_sparse": _PORTS,
    "fault_tolerant": "every job survives the loss of any process, and counts each minibatch exactly once",
    "HostNetwork": _NETWORK,
    "hostNetwork": _NETWORK,
    "host_network": _NETWORK,
    "etcd-endpoint": _ETCD,
    "replicaSpec": "the controller makes the pods; what has no field goes into podTemplate",
    "workspace": "a model file is in spec.model.files, or job.model_def has its path in the image",
}
"""Field of ``spec``, or of a role -> why there is none today."""
_CONVERTED = {
    *("image", "imagePullSecrets", "passes", "volumes", "VolumeMounts", "trainer", "pserver", "master"),
    *("entrypoint", "min-instance", "max-instance", "resources"),
}


def converted_text(file: Path) -> str:
    """The TrainingJobs of a file as YAML documents, each below what a reader has to know of it.

    Raises:
        UserError: the file can't be read, or has an object that can't be converted.
    """
    import yaml  # Comes with the package kubernetes.

    with file_errors(f"{file} can't be read", usage=True):
        content = file.read_text()
    try:
        objects = [each for each in yaml.safe_load_all(content) if each is not None]
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}", usage=True) from error
    if not objects or not all(isinstance(each, dict) for each in objects):
        raise UserError(f"{file} has no objects of Kubernetes", usage=True)
    texts = []
    for manifest, notes in map(converted, objects):
        texts.append("".join(f"# {note}\n" for note in notes) + objects_text([manifest]))
    return "---\n".join(texts)


def converted(former: Manifest) -> tuple[Manifest, list[str]]:
    """Convert an object, of the third-party resource or of the custom resource definition, which have the same fields.

    Returns:
        The object of today, and what a reader has to know: one sentence for each field that has no meaning any more,
        and for what EDL did not have.

    Raises:
        UserError: the object is none of EDL, or a value makes no sense.
    """
    if former.get("kind") != TRAINING_JOB.name or former.get("apiVersion") != FORMER_VERSION:
        raise UserError(
            f"the object is no TrainingJob of {FORMER_VERSION}, but {former.get('kind')} of {former.get('apiVersion')}"
        )
    old: Mapping[str, Any] = former.get("spec") or {}
    trainer = old.get("trainer") or {}
    spec: dict[str, Any] = {"image": old["image"]} if "image" in old else {}
    secrets = old.get("imagePullSecrets") or []
    if secrets:
        spec["imagePullSecrets"] = [secrets] if isinstance(secrets, dict) else secrets
    spec["job"] = {"model_def": _model_file(trainer.get("entrypoint", "")), "training_data": PLACE}
    if passes := trainer.get("passes") or old.get("passes"):
        spec["job"]["num_epochs"] = passes
    spec |= {today: _role(old[name] or {}) for name, today in _ROLES.items() if name in old}
    volumes, lost = _volumes(old)
    if volumes:
        spec["volumes"] = volumes
    metadata = former.get("metadata") or {}
    manifest = {
        "apiVersion": TRAINING_JOB.api_version,
        "kind": TRAINING_JOB.name,
        "metadata": {name: metadata[name] for name in _KEPT_METADATA if name in metadata},
        "spec": spec,
    }
    TrainingJobSpec.from_manifest(manifest)
    notes = [
        f"spec.trainer.entrypoint ({trainer.get('entrypoint', '')}): job.model_def names a Keras model file.",
        f"spec.job.training_data: EDL's programs found their data themselves. Replace {PLACE}.",
        *(f"{path}: no meaning; {why}." for path, why in _dropped(old)),
        *lost,
    ]
    if "status" in former:
        notes.append("status: no meaning; the controller writes a new one.")
    return manifest, notes


def _model_file(entrypoint: str) -> str:
    """The program of ``python /workspace/train.py``, as the path of a model file."""
    found = re.search(r"\S+\.py\b", entrypoint)
    return found[0] if found else "MODEL.py"


def _role(old: Mapping[str, Any]) -> dict[str, Any]:
    role: dict[str, Any] = {}
    if "max-instance" in old:
        role = {"min": max(1, old.get("min-instance", 1)), "max": max(1, old["max-instance"])}
    resources = {
        part: {_GPU if name == _FORMER_GPU else name: quantity for name, quantity in amounts.items()}
        for part, amounts in (old.get("resources") or {}).items()
        if amounts
    }
    return role | ({"resources": resources} if resources else {})


def _volumes(old: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The volumes that are mounted, and what to know of those that have no counterpart."""
    sources = {each["name"]: each for each in old.get("volumes") or ()}
    found, lost = [], []
    for mount in old.get("VolumeMounts") or ():
        source = sources.get(mount["name"], {})
        volume: dict[str, Any] = {}
        if claim := source.get("persistentVolumeClaim"):
            volume["claimName"] = claim["claimName"]
        elif path := source.get("hostPath"):
            volume = {"hostPath": path["path"], **({"type": path["type"]} if path.get("type") else {})}
        else:
            lost.append(f"spec.volumes ({mount['name']}): neither a claim nor a hostPath; put it into podTemplate.")
            continue
        volume |= {name: mount[name] for name in ("mountPath", "subPath", "readOnly") if mount.get(name)}
        found.append(volume)
    return found, lost


def _dropped(old: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, why) of each field that has no counterpart."""
    sections = {"spec": old} | {f"spec.{role}": old[role] or {} for role in _ROLES if role in old}
    for path, fields in sections.items():
        for name, value in fields.items():
            if name not in _CONVERTED:
                yield f"{path}.{name} ({_shown(value)})", _NO_MEANING.get(name, "TrainingJobs do not have it")


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
