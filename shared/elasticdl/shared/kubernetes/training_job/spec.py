"""What a TrainingJob asks for, as the options that all other ways to start a job have."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import COMMAND_FLAGS, CommandFlags, TrainFlags
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.options import Seconds, from_plain_values
from elasticdl.shared.job.spec import Strategy
from elasticdl.shared.kubernetes.kinds import TRAINING_JOB, Manifest
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.training_job.job_schema import REQUIRED, is_switch, options_of, without_dashes
from elasticdl.shared.kubernetes.training_job.schema import MANAGED_BY, MODEL_BYTES_MAX, spec_schema
from elasticdl.shared.names import check_job_name
from elasticdl.shared.words import did_you_mean

ROLES = ("master", "worker", "ps")
VOLUME_KEYS = {
    "claimName": "claim_name",
    "hostPath": "host_path",
    "type": "type",
    "mountPath": "mount_path",
    "subPath": "sub_path",
    "readOnly": "read_only",
}
"""Field of a volume -> its key in ``--volume``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """The pods of a role: of master, workers or parameter servers.

    Attributes:
        min: fewest pods that the job starts and continues with.
        max: most pods that it may have.
        replicas: the number that a person asks for; None: the controller chooses.
        requests: quantity by resource, as Kubernetes names them. ``limits`` has only those that are given.
    """

    min: int = 1
    max: int = 1
    replicas: int | None = None
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJobSpec:
    """What a TrainingJob asks for.

    Attributes:
        name: of the object, and the first part of the job's id.
        uid: of the object; empty: the API server has not seen it.
        flags: of ``elasticdl train``, ``evaluate`` or ``predict``. ``num_workers`` is the most workers that the job may
            have, because the size of an update can depend on it; ``num_ps_pods`` the parameter servers that it starts
            with (a ring has none, and ``ps.max`` is 0). ``job_name`` is the name of the object, and ``model_def`` may
            name one of ``model_files``.
        model_files: content of the model file and of the modules beside it; empty: the model is in the image.
        template: strategic merge patch of the template of all pods.
        priority_class: of the job; empty: none.
        deadline_s: seconds after which the job is stopped; None: never.
        keep_finished_s: seconds after the end of the job after which its objects are deleted.
    """

    name: str
    namespace: str
    uid: str
    kind: JobKind
    flags: CommandFlags
    pods: KubernetesFlags
    model_files: Mapping[str, str]
    master: RoleSpec
    worker: RoleSpec
    ps: RoleSpec
    template: Mapping[str, Any] = field(default_factory=dict)
    priority_class: str = ""
    queue: str = ""
    suspend: bool = False
    deadline_s: int | None = None
    keep_finished_s: int = 0
    managed_by: str = MANAGED_BY

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> TrainingJobSpec:
        """Read an object, which may come from the API server or from a file.

        Raises:
            UserError: a field is unknown, is missing, or has a wrong value. Names its path: ``spec.worker.max``.
        """
        if (manifest.get("apiVersion"), manifest.get("kind")) != (TRAINING_JOB.api_version, TRAINING_JOB.name):
            raise UserError(
                f"the object is no TrainingJob of {TRAINING_JOB.api_version}",
                hint="Convert one of PaddlePaddle EDL with elasticdl trainingjob convert.",
            )
        metadata = manifest.get("metadata", {})
        spec = completed(spec_schema(), manifest.get("spec", {}), "spec")
        name = metadata.get("name", "")
        try:
            check_job_name(name)
        except UserError as error:
            raise UserError(f"metadata.name is {name!r}, which is no name of a job", hint=error.hint) from error
        kind = JobKind(spec["kind"])
        flags = _flags(kind, spec["job"])
        roles = {role: _role(spec[role], f"spec.{role}") for role in ROLES}
        if has_ring := _has_ring(flags):
            roles["ps"] = _without_pods(roles["ps"])
        worker, ps = roles["worker"], roles["ps"]
        files = spec.get("model", {}).get("files", {})
        _check_files(files, spec["job"]["model_def"])
        return cls(
            name=name,
            namespace=metadata.get("namespace", ""),
            uid=metadata.get("uid", ""),
            kind=kind,
            flags=replace(
                flags,
                platform="kubernetes",
                job_name=name,
                num_workers=worker.max,
                num_ps_pods=flags.num_ps_pods if has_ring else ps.replicas or ps.min,
            ),
            pods=_pods(spec, metadata.get("namespace", ""), roles),
            model_files=files,
            **roles,
            template=spec.get("podTemplate", {}),
            priority_class=spec.get("priorityClassName", ""),
            queue=spec.get("queue", ""),
            suspend=spec["suspend"],
            deadline_s=spec.get("activeDeadlineSeconds"),
            keep_finished_s=spec["ttlSecondsAfterFinished"],
            managed_by=spec["managedBy"],
        )

    @property
    def patches(self) -> dict[str, dict[str, Any]]:
        """Strategic merge patches of the pod templates, as a file of ``--cluster_spec`` has them."""
        found = {"all": self.template, **{role: _patch(getattr(self, role)) for role in ROLES}}
        return {section: dict(patch) for section, patch in found.items() if patch}

    def flags_for(self, workers: int, ps: int) -> CommandFlags:
        """The flags of a start with other numbers of processes.

        Synchronous updates keep their size: where it follows from the number of workers, it is that of ``flags``.
        """
        flags = self.flags
        if isinstance(flags, TrainFlags) and flags.is_synchronous:
            flags = replace(flags, grads_to_wait=flags.batches_per_update)
        return replace(flags, num_workers=workers, num_ps_pods=flags.num_ps_pods if _has_ring(flags) else ps)


def _has_ring(flags: CommandFlags) -> bool:
    return isinstance(flags, TrainFlags) and flags.strategy is Strategy.ALLREDUCE


def _without_pods(ps: RoleSpec) -> RoleSpec:
    """The ps of a job whose workers have the model. An object always has ``spec.ps``: the API server adds it."""
    if ps.max > 1:
        raise UserError(
            f"spec.ps.max is {ps.max}, and a TrainingJob with distribution_strategy=AllreduceStrategy has no parameter "
            "servers",
            hint="Leave spec.ps out.",
        )
    return replace(ps, min=0, max=0, replicas=None)


def _patch(role: RoleSpec) -> dict[str, Any]:
    """The patch of the pods of a role; ``podTemplate`` takes precedence."""
    pod = role.template.get("spec", {})
    placement = {
        "nodeSelector": {**role.node_selector, **pod.get("nodeSelector", {})},
        "tolerations": [*role.tolerations, *pod.get("tolerations", ())],
    }
    pod = {**pod, **{name: value for name, value in placement.items() if value}}
    return {**role.template, "spec": pod} if pod else dict(role.template)


def _role(values: Mapping[str, Any], path: str) -> RoleSpec:
    resources = values.get("resources", {})
    role = RoleSpec(
        min=values.get("min", 1),
        max=values.get("max", 1),
        replicas=values.get("replicas"),
        requests={name: str(quantity) for name, quantity in resources.get("requests", {}).items()},
        limits={name: str(quantity) for name, quantity in resources.get("limits", {}).items()},
        node_selector=values.get("nodeSelector", {}),
        tolerations=tuple(values.get("tolerations", ())),
        template=values.get("podTemplate", {}),
    )
    if role.min > role.max:
        raise UserError(f"{path}.max is {role.max}, below {path}.min, which is {role.min}")
    if role.replicas is not None and not role.min <= role.replicas <= role.max:
        raise UserError(f"{path}.replicas is {role.replicas}; it must be {role.min} to {role.max}")
    return role


def _flags(kind: JobKind, job: Mapping[str, Any]) -> CommandFlags:
    options = options_of(kind)
    values = {}
    for name, value in job.items():
        if name not in options:
            raise UserError(f"spec.job.{name} is no option of a job of kind {kind.value}")
        values[name] = str(value).lower() if is_switch(options[name]) else value
        allowed = options[name].get("enum", [values[name]])
        if values[name] not in allowed:
            raise UserError(f"spec.job.{name} is one of {', '.join(allowed)}, not {value!r}")
    for name in REQUIRED[kind]:
        if not values.get(name):
            raise UserError(f"spec.job.{name} is missing; a job of kind {kind.value} needs it")
    flags = from_plain_values(COMMAND_FLAGS[kind], values)
    try:
        flags.check()
    except UserError as error:
        raise UserError(f"spec.job: {without_dashes(str(error))}") from error
    return flags


def _pods(spec: Mapping[str, Any], namespace: str, roles: Mapping[str, RoleSpec]) -> KubernetesFlags:
    priority = spec.get("priorityClassName", "")
    priorities = {role: spec[role].get("priorityClassName", priority) for role in ROLES}
    share = spec["worker"].get("highPriorityShare")
    resources: dict[str, Any] = {f"{role}_resource_request": _items(own.requests) for role, own in roles.items()}
    resources |= {f"{role}_resource_limit": _items(own.limits) for role, own in roles.items()}
    pods = KubernetesFlags(
        namespace=namespace,
        image_name=spec.get("image", ""),
        master_image=spec["master"].get("image", ""),
        ps_image=spec["ps"].get("image", ""),
        image_pull_policy=spec.get("imagePullPolicy"),
        image_pull_deadline_secs=Seconds(spec["imagePullDeadlineSeconds"]),
        image_pull_secrets=",".join(each["name"] for each in spec.get("imagePullSecrets", ())),
        **resources,
        master_pod_priority=priorities["master"],
        worker_pod_priority=priorities["worker"] if share is None else f"high={share:g}",
        ps_pod_priority=priorities["ps"],
        volume=";".join(map(_volume, spec.get("volumes", ()))),
        service_account_name=spec["serviceAccountName"],
        run_as_user=str(spec.get("runAsUser", "")),
        node_selector=_items(spec.get("nodeSelector", {})),
        keep_finished=spec["ttlSecondsAfterFinished"],
    )
    pods.check("kubernetes")
    return pods


def _volume(volume: Mapping[str, Any]) -> str:
    return _items({VOLUME_KEYS[name]: "true" if value is True else value for name, value in volume.items() if value})


def _items(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _check_files(files: Mapping[str, str], model_def: str) -> None:
    if files and model_def.partition(":")[0] not in files:
        raise UserError(
            f"spec.job.model_def is {model_def!r}, which is none of spec.model.files",
            hint="Give the name of the file, or FILE:SYMBOL.",
        )
    size = sum(len(text.encode()) for text in files.values())
    if size > MODEL_BYTES_MAX:
        raise UserError(
            f"spec.model.files has {size:,} bytes; it may have {MODEL_BYTES_MAX:,}",
            hint="Put the modules into the image.",
        )
    for name in files:
        if name.startswith("/") or ".." in name.split("/") or not name:
            raise UserError(f"spec.model.files: {name!r} is no path of a file in a folder", hint="Such as model.py.")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_NAMES: Mapping[str, str] = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def completed(schema: Mapping[str, Any], value: Any, path: str) -> Any:
    """A copy of a value with the defaults of its schema.

    Raises:
        UserError: the value does not fit the schema. Names the path of the field, such as ``spec.worker.max``.
    """
    _check_type(schema, value, path)
    _check_limits(schema, value, path)
    if isinstance(value, dict) and "properties" in schema:
        return _completed_fields(schema, value, path)
    if isinstance(value, dict) and isinstance(items := schema.get("additionalProperties"), dict):
        return {name: completed(items, each, f"{path}.{name}") for name, each in value.items()}
    if isinstance(value, list):
        return [completed(schema["items"], each, f"{path}[{number}]") for number, each in enumerate(value)]
    return copy.deepcopy(value)


def _completed_fields(schema: Mapping[str, Any], values: Mapping[str, Any], path: str) -> dict[str, Any]:
    properties = schema["properties"]
    for name in values:
        if name not in properties:
            raise UserError(f"{path}.{name} is no field", hint=did_you_mean(str(name), properties))
    for name in schema.get("required", ()):
        if name not in values:
            raise UserError(f"{path}.{name} is missing")
    found = {}
    for name, declared in properties.items():
        value = values.get(name, declared.get("default"))
        if value is not None:
            found[name] = completed(declared, value, f"{path}.{name}")
    return found


def _check_type(schema: Mapping[str, Any], value: Any, path: str) -> None:
    named = schema.get("type", "")
    types = _TYPES.get(named, (int, str))  # No type: an int-or-string.
    is_bool = isinstance(value, bool)
    if not isinstance(value, types) or (is_bool and named != "boolean"):
        wanted = _NAMES.get(named, "a text or a whole number")
        raise UserError(f"{path} is {wanted}, not {value!r}")


def _check_limits(schema: Mapping[str, Any], value: Any, path: str) -> None:
    if "enum" in schema and value not in schema["enum"]:
        raise UserError(f"{path} is one of {', '.join(schema['enum'])}, not {value!r}")
    if isinstance(value, (int, float)):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            raise UserError(f"{path} is {value}; it must be {low} to {high}")
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)):
            raise UserError(f"{path} has {len(value):,} characters; it may have {schema['maxLength']:,}")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise UserError(f"{path} is {value!r}; it must match {schema['pattern']}")
    most = schema.get("maxItems", schema.get("maxProperties"))
    if most is not None and isinstance(value, (list, dict)) and len(value) > most:
        raise UserError(f"{path} has {len(value)} items; it may have {most}")
