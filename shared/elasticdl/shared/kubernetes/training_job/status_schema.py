"""The schema of a TrainingJob's ``status``, which the controller writes."""

from __future__ import annotations

from elasticdl.shared.kubernetes.training_job.fields import Schema, struct, text

_MESSAGE_CHARS_MAX = 32_768


def status_schema() -> Schema:
    """The schema of ``status``. A field is absent as long as it is not known."""
    return struct(
        "What the job has and how far it is. The controller writes it.",
        {
            "phase": text(
                "Where the job stands: Invalid, Waiting, Starting, Running, Suspending, Suspended, Succeeded, Failed "
                "or Stopped."
            ),
            "reason": text("Why the job has what it has, by the last decision of the controller.", _MESSAGE_CHARS_MAX),
            "conditions": _conditions(),
            "observedGeneration": _number("The metadata.generation that the controller has acted on."),
            "job": text("Id of the job: for elasticdl status, logs and attach."),
            "workers": _number("Running workers."),
            "workersText": text("Running workers beside what the job may have: 3 (1-6)."),
            "ps": _number("Running parameter servers."),
            "psText": text("Running parameter servers beside what the job may have: 2 (1-4)."),
            "progress": _number("Percentage of the job's records that are done.") | {"maximum": 100},
            "remainingSeconds": _number("Estimated seconds until the job ends, at its present speed."),
            "metrics": {
                "type": "object",
                "description": "The loss and the newest metrics by name, as decimal numbers.",
                "maxProperties": 256,
                "additionalProperties": {"type": "string", "maxLength": 64},
            },
            "goodput": text(
                "Share of the time of the job's processes in which they did work that counts, as a decimal number "
                "from 0 to 1."
            ),
            "startTime": _time("When the job's objects were first created."),
            "completionTime": _time("When the job ended."),
            "selector": text("Selector of the labels of the job's pods, for the scale subresource.", 1024),
        },
    )


def _conditions() -> Schema:
    return {
        "type": "array",
        "description": "Admitted, Running, Suspended, Complete and Failed. kubectl wait waits for them.",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": struct(
            "Whether something is true of the job.",
            {
                "type": text("What it is about."),
                "status": {**text("Whether it is so."), "enum": ["True", "False", "Unknown"]},
                "reason": text("Why, as one word for programs."),
                "message": text("Why, in words for people.", _MESSAGE_CHARS_MAX),
                "lastTransitionTime": _time("When the status changed last."),
                "observedGeneration": _number("The metadata.generation that this is about."),
            },
            required=["type", "status"],
        ),
    }


def _number(description: str) -> Schema:
    return {"type": "integer", "format": "int64", "description": description, "minimum": 0}


def _time(description: str) -> Schema:
    return {"type": "string", "format": "date-time", "description": description}
