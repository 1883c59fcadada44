"""The parts that the schemas of a TrainingJob are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
SECONDS_MAX = (1 << 31) - 1
NAME_CHARS_MAX = 253
TEXT_CHARS_MAX = 16_384


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
