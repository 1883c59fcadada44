"""The schema of ``spec.job``: the options of a job, from their declarations.

An option that sets the number of processes, or that only the command line has, is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elasticdl.shared.job.job_options import CLIENT_FLAGS
from elasticdl.shared.job.kind_options import COMMAND_FLAGS
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.options import json_schema

ALIASES: Mapping[str, str] = {"checkpoint_dir": "storage", "checkpoint_dir_for_init": "model"}
"""Second name of an option -> the name that ``spec.job`` has."""
NO_JOB_OPTIONS = (*CLIENT_FLAGS, *ALIASES, "job_name", "model_zoo", "num_ps_pods", "num_workers", "spare_workers")
"""Options that ``spec.job`` has not: a TrainingJob has its own name, model files, and numbers of processes. Its
controller gives jobs workers and takes them, and counts no spares."""
REQUIRED: Mapping[JobKind, tuple[str, ...]] = {
    kind: (*json_schema(flags)["required"], *(() if kind.trains else ("model",)))
    for kind, flags in COMMAND_FLAGS.items()
}
"""Options that ``spec.job`` needs, by kind of job."""
_EXACT_MAX = 1 << 53
"""The API server keeps limits as floating-point numbers. Greater ones are those of the type."""
_OWN_DESCRIPTIONS: Mapping[str, str] = {
    "model_def": "The model: FILE or FILE:SYMBOL, a file of spec.model.files. Without such files: the absolute path of "
    "a file of the image, or module.symbol for a model of the model zoo.",
    "model": "The trained model: s3://bucket/prefix, a file of a volume, or the name or id of a job.",
    "distribution_strategy": "How workers exchange gradients: through parameter servers (ParameterServerStrategy), or "
    "in a ring of workers (AllreduceStrategy: synchronous like use_async=false, not for elasticdl.layers.Embedding).",
    "envs": "Environment variables of workers and parameter servers: NAME=value,NAME=value. Everybody who may read the "
    "object sees them: put secrets into the Secret elasticdl of the namespace.",
}
"""Of options that mean something else on the command line."""
Schema = dict[str, Any]
SECONDS_MAX = (1 << 31) - 1
NAME_CHARS_MAX = 253
TEXT_CHARS_MAX = 16_384


def job_schema() -> Schema:
    """The schema of ``spec.job``: the options of the three kinds of jobs."""
    options = {kind: options_of(kind) for kind in JobKind}
    names = dict.fromkeys(name for of_kind in options.values() for name in of_kind)
    return struct(
        "The options of the job, as in a job file. See elasticdl train, evaluate and predict. They can't change.",
        {name: _merged(name, {kind: own[name] for kind, own in options.items() if name in own}) for name in names},
        required=["model_def"],
    )


def options_of(kind: JobKind) -> dict[str, Schema]:
    """The options that ``spec.job`` of a kind of job may have: option -> its schema."""
    return {
        name: schema
        for name, schema in json_schema(COMMAND_FLAGS[kind])["properties"].items()
        if name not in NO_JOB_OPTIONS
    }


def is_switch(schema: Schema) -> bool:
    """Whether an option takes the texts ``true`` and ``false``, for which ``spec.job`` has a boolean."""
    return schema.get("enum") == ["true", "false"]


def _merged(name: str, schemas: Mapping[JobKind, Schema]) -> Schema:
    """The schema of an option that several kinds of jobs have, perhaps with different help, limits and defaults."""
    one = next(iter(schemas.values()))
    merged: Schema = {"type": one["type"], "description": _OWN_DESCRIPTIONS.get(name) or _by_kind(schemas)}
    if is_switch(one):
        return merged | {"type": "boolean"}
    if "enum" in one:
        merged["enum"] = list(dict.fromkeys(each for schema in schemas.values() for each in schema["enum"]))
    elif one["type"] == "string":
        merged["maxLength"] = TEXT_CHARS_MAX
    elif one["type"] == "integer":
        merged["format"] = "int64"
    if "minimum" in one:
        merged["minimum"] = min(schema["minimum"] for schema in schemas.values())
        most = max(schema["maximum"] for schema in schemas.values())
        if most <= _EXACT_MAX:
            merged["maximum"] = most
    return merged


def _by_kind(schemas: Mapping[JobKind, Schema]) -> str:
    """The description of an option, with its default, which objects do not have: it is that of the job's version."""
    kinds: dict[str, list[str]] = {}
    for kind, schema in schemas.items():
        default = schema.get("default")
        shown = f" Default: {_shown(default)}." if default not in (None, "") else ""
        description = without_dashes(schema["description"]).replace(", or given by repeating the flag", "")
        kinds.setdefault(description + shown, []).append(kind.value)
    if len(kinds) == 1:
        return next(iter(kinds))
    return " ".join(f"To {' or '.join(own)}: {text}" for text, own in kinds.items())


def _shown(default: object) -> str:
    text = f"{default:g}" if isinstance(default, float) else str(default)
    return text.lower() if isinstance(default, bool) else text


def struct(description: str, properties: Mapping[str, Schema], required: list[str] | None = None) -> Schema:
    """An object with these fields."""
    return {
        "type": "object",
        "description": description,
        **({"required": required} if required else {}),
        "properties": dict(properties),
    }


def text(description: str, chars_max: int = NAME_CHARS_MAX) -> Schema:
    """A text, with the limit that estimates of a rule's cost need."""
    return {"type": "string", "description": description, "maxLength": chars_max}


def count(description: str, most: int, least: int = 1) -> Schema:
    """A whole number from ``least`` to ``most``."""
    return {"type": "integer", "format": "int64", "description": description, "minimum": least, "maximum": most}


def without_dashes(text: str) -> str:
    """A help text whose flags are fields: ``--seed`` is ``seed``."""
    return re.sub(r"--(?=[a-z])", "", text)
