"""What a dataclass says of its protobuf message besides names and types, in ``Annotated``; see ``schema.py``.

========================  ===================================================
``Annotated[X, "Y"]``     the message for the tuple or union is called ``Y``
``Uint64``                an integer that is not signed
``Separate[X]``           no field of the message: it travels beside it
``Pair("Y", "a", "b")``   the message for two integers is called ``Y``
========================  ===================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

T = TypeVar("T")


class Rule(Enum):
    """How a field differs from others of its type."""

    UNSIGNED = "unsigned"
    SEPARATE = "separate"


@dataclass(frozen=True, slots=True)
class Pair:
    """The message of a ``tuple[int, int]``, and its two fields."""

    message: str
    first: str
    second: str
    is_signed: bool = False


RANGE = Pair("Range", "start", "end", is_signed=True)
"""What two integers are that say nothing else."""
Uint64: TypeAlias = Annotated[int, Rule.UNSIGNED]
Separate: TypeAlias = Annotated[T, Rule.SEPARATE]


def cases(union: Any) -> tuple[type, ...]:
    """The classes of a union."""
    return tuple(getattr(case, "__origin__", case) for case in get_args(union))
