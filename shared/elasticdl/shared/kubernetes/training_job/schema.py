"""The schema of a TrainingJob's ``spec``, as Kubernetes has it: structural, with a description of every field."""

from __future__ import annotations

from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.options import json_schema
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.training_job.job_schema import (
    SECONDS_MAX,
    Schema,
    count,
    job_schema,
    struct,
    text,
    without_dashes,
)
from elasticdl.shared.kubernetes.training_job.pod_schema import image_fields, placement_fields, role_fields

MANAGED_BY = "elasticdl.org/controller"
"""Default of ``spec.managedBy``."""
MODEL_BYTES_MAX = 900_000
"""A ConfigMap may have 1 MiB, and the object that contains the model 1.5 MiB."""
_KEEP_FINISHED = json_schema(KubernetesFlags)["properties"]["keep_finished"]


def spec_schema() -> Schema:
    """The schema of ``spec``, without the rules between fields."""
    return struct(
        "What the job is, and what it may use.",
        {
            "kind": {
                **text(
                    "What the job does: train a model, evaluate a trained one, or predict with it. It can't change."
                ),
                "enum": [kind.value for kind in JobKind],
                "default": JobKind.TRAIN.value,
            },
            **image_fields(),
            "job": job_schema(),
            "model": _model(),
            **role_fields(),
            **placement_fields(),
            **_lifecycle_fields(),
        },
        required=["job"],
    )


def _model() -> Schema:
    return struct(
        "The model file and the modules beside it. Without them, job.model_def names a model of the image.",
        {
            "files": {
                "type": "object",
                "description": f"Content of each file by its name, such as model.py. Together they may have "
                f"{MODEL_BYTES_MAX:,} bytes.",
                "maxProperties": 256,
                "additionalProperties": {"type": "string", "maxLength": MODEL_BYTES_MAX},
            }
        },
    )


def _lifecycle_fields() -> dict[str, Schema]:
    """When the job runs, and who decides that."""
    return {
        "priorityClassName": text(
            "PriorityClass of the job. The controller makes room for jobs of higher priority first. The pods of a "
            "role without a priorityClassName of its own have it."
        ),
        "queue": text("Queue whose quota the job uses. Empty: the job needs no quota."),
        "suspend": {
            "type": "boolean",
            "description": "Whether the job has no pods: it does not start, or it saves a snapshot and stops. It "
            "continues from there when this is false again.",
            "default": False,
        },
        "activeDeadlineSeconds": count(
            "The job is stopped after it has been active for this many seconds.", SECONDS_MAX
        ),
        "ttlSecondsAfterFinished": {
            **count(without_dashes(_KEEP_FINISHED["description"]), SECONDS_MAX, least=0),
            "default": _KEEP_FINISHED["default"],
        },
        "managedBy": {
            **text(
                "The controller that acts on this object. A controller leaves objects of others alone. It can't change."
            ),
            "default": MANAGED_BY,
        },
    }
