"""Metrics as text that Prometheus reads, in its text format 0.0.4. Pure; the one place that writes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name with the unit last, what kind it is, what it means, and its values by labels.

    A counter's name ends with ``_total``.
    """

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, value: float, **labels: str) -> Family:
        """Set the value for these labels; returns the family."""
        self.values[tuple(labels.items())] = value
        return self


def text_of(families: Iterable[Family], *, common: Mapping[str, str] | None = None) -> str:
    """The text; families without values are left out.

    Args:
        common: labels of all values.
    """
    lines: list[str] = []
    for family in families:
        if family.values:
            lines += [f"# HELP {family.name} {_escaped(family.about)}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.values.items():
            lines.append(f"{family.name}{_labels((*(common or {}).items(), *labels))} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    quoted = (f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels)
    return "{" + ",".join(quoted) + "}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.10g}" if abs(value) < 1e9 else f"{value:.17g}"
