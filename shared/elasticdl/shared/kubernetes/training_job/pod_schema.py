"""The schema of the pods of a TrainingJob: images, resources, placement, and how many of them there may be."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.shared.job.job_options import PS_MAX, WORKERS_MAX
from elasticdl.shared.job.options import json_schema
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.training_job.job_schema import (
    NAME_CHARS_MAX,
    SECONDS_MAX,
    Schema,
    count,
    struct,
    text,
    without_dashes,
)
from elasticdl.shared.words import listed

WORKERS_DEFAULT, PS_DEFAULT = {"min": 1, "max": 2}, {"min": 1, "max": 1}
_ITEMS_MAX = 64
_PODS = json_schema(KubernetesFlags)["properties"]
_NO_SEPARATOR = "^[^,;]*$"
_QUANTITY = r"^[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"


def image_fields() -> dict[str, Schema]:
    """Where the pods' program comes from."""
    return {
        "image": _pod_option("image_name"),
        "imagePullPolicy": _pod_option("image_pull_policy"),
        "imagePullSecrets": {
            "type": "array",
            "description": "Secrets of the namespace with the registry's credentials.",
            "maxItems": 16,
            "items": struct(
                "A Secret.", {"name": {**text("Name of the Secret."), "pattern": _NO_SEPARATOR}}, required=["name"]
            ),
        },
        "imagePullDeadlineSeconds": _pod_option("image_pull_deadline_secs"),
    }


def role_fields() -> dict[str, Schema]:
    """The pods of each role."""
    return {
        "master": {
            **_role("master", "The pod of the master, which plans the job and keeps its log.", {}),
            "default": {},
        },
        "worker": {
            **_role(
                "worker",
                "The pods of the workers, which compute gradients.",
                _counts("workers", WORKERS_MAX)
                | {
                    "highPriorityShare": {
                        "type": "number",
                        "description": "This share of the workers has the namespace's priority_class_high, the "
                        "others have its priority_class_low.",
                        "minimum": 0,
                        "maximum": 1,
                    }
                },
                required=["max"],
            ),
            "default": WORKERS_DEFAULT,
        },
        "ps": {
            **_role(
                "ps",
                "The pods of the parameter servers, which hold the model. A job with AllreduceStrategy has none.",
                _counts("parameter servers", PS_MAX),
                required=["max"],
            ),
            "default": PS_DEFAULT,
        },
    }


def placement_fields() -> dict[str, Schema]:
    """What the pods of all roles have in common."""
    return {
        "volumes": _volumes(),
        "nodeSelector": _node_selector("all pods"),
        "podTemplate": _pod_template("all pods"),
        "serviceAccountName": _pod_option("service_account_name"),
        "runAsUser": {
            "x-kubernetes-int-or-string": True,
            "description": _described("run_as_user"),
            "pattern": "^(none|[1-9][0-9]{0,9})$",
        },
    }


def _described(option: str) -> str:
    """The description of an option of pods."""
    return without_dashes(_PODS[option]["description"])


def _pod_option(option: str) -> Schema:
    """An option of pods as it is, with its default."""
    schema: Schema = _PODS[option] | {"description": _described(option)}
    if schema["type"] == "string" and "enum" not in schema:
        schema["maxLength"] = NAME_CHARS_MAX
    match schema.pop("default", ""):
        case float(seconds):
            schema["default"] = int(seconds)
        case default if default != "":
            schema["default"] = default
    return schema


def _counts(what: str, most: int) -> dict[str, Schema]:
    """How many pods a role may have."""
    return {
        "min": {
            **count(f"Fewest {what} that the job starts and continues with.", most),
            "default": 1,
        },
        "max": count(f"Most {what} that the job may have.", most),
        "replicas": count(
            f"The number of {what} that a person asks for, from min to max: kubectl scale sets it for workers. Without "
            "it the controller chooses.",
            most,
        ),
    }


def _role(role: str, description: str, own: Mapping[str, Schema], required: list[str] | None = None) -> Schema:
    """The pods of a role."""
    image = {} if role == "worker" else {"image": _pod_option(f"{role}_image")}
    requests = dict(item.split("=") for item in listed(_PODS[f"{role}_resource_request"]["default"]))
    return struct(
        description,
        {
            **own,
            **image,
            "resources": {
                **struct(
                    "Resources of each pod.",
                    {
                        "requests": _quantities("What a node must have free for a pod."),
                        "limits": _quantities("What a pod may use at most. What is not given is as in requests."),
                    },
                ),
                "default": {"requests": requests},
            },
            "priorityClassName": text("PriorityClass of these pods."),
            "nodeSelector": _node_selector("these pods, besides those of all pods"),
            "tolerations": _tolerations(),
            "podTemplate": _pod_template("these pods"),
        },
        required,
    )


def _quantities(description: str) -> Schema:
    return {
        "type": "object",
        "description": f"{description} cpu, memory, ephemeral-storage, or a device such as nvidia.com/gpu.",
        "maxProperties": 16,
        "additionalProperties": {"x-kubernetes-int-or-string": True, "pattern": _QUANTITY, "maxLength": 32},
    }


def _node_selector(whose: str) -> Schema:
    return {
        "type": "object",
        "description": f"Labels of the nodes that may run {whose}.",
        "maxProperties": _ITEMS_MAX,
        "additionalProperties": {"type": "string", "maxLength": 63},
    }


def _tolerations() -> Schema:
    return {
        "type": "array",
        "description": "Taints of nodes that these pods tolerate.",
        "maxItems": _ITEMS_MAX,
        "items": struct(
            "A toleration, as in a pod.",
            {
                "key": text("Key of the taint. Empty with operator Exists: all taints."),
                "operator": {**text("Whether the taint has the value."), "enum": ["Exists", "Equal"]},
                "value": text("Value of the taint."),
                "effect": {
                    **text("Effect of the taint. Empty: all effects."),
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "tolerationSeconds": count(
                    "Seconds that a pod stays on a node with a taint NoExecute. Without it: for ever.", SECONDS_MAX, 0
                ),
            },
        ),
    }


def _volumes() -> Schema:
    return {
        "type": "array",
        "description": "Volumes that all pods mount.",
        "maxItems": _ITEMS_MAX,
        "items": struct(
            "A volume: claimName or hostPath, and where pods mount it.",
            {
                "claimName": {**text("Name of a PersistentVolumeClaim."), "pattern": _NO_SEPARATOR},
                "hostPath": {**text("Folder of the node.", 4096), "pattern": "^/[^,;]*$"},
                "type": {**text("Type of the hostPath, such as DirectoryOrCreate."), "pattern": _NO_SEPARATOR},
                "mountPath": {**text("Folder in the pods.", 4096), "pattern": "^/[^,;]*$"},
                "subPath": {**text("Folder in the volume.", 4096), "pattern": _NO_SEPARATOR},
                "readOnly": {"type": "boolean", "description": "Whether pods can't write to it.", "default": False},
            },
            required=["mountPath"],
        ),
    }


def _pod_template(whose: str) -> Schema:
    return {
        "type": "object",
        "description": f"Strategic merge patch of the pod template of {whose}, with metadata and spec: for affinity "
        "and whatever has no field.",
        "x-kubernetes-preserve-unknown-fields": True,
    }
