"""What a dataclass says of its protobuf message besides names and types, in ``Annotated``; see ``schema.py``.

======================  ================================================================================================
``Annotated[X, 30]``    the field, or the case of a union, has this number; without it, one more than the one before
``Annotated[X, "Y"]``   the message for the tuple or union is called ``Y``
``Uint64``              an integer that is not signed
``OrZero[X]``           a record without the field means zero, whatever the default is
======================  ================================================================================================
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

T = TypeVar("T")


class Rule(Enum):
    """How a field differs from others of its type."""

    UNSIGNED = "unsigned"
    OR_ZERO = "or zero"
    """Not ``optional`` in spite of a default: a field of the first versions, in which zero is not written."""


Uint64: TypeAlias = Annotated[int, Rule.UNSIGNED]
OrZero: TypeAlias = Annotated[T, Rule.OR_ZERO]


def cases(union: Any) -> tuple[type, ...]:
    """The classes of a union."""
    return tuple(getattr(case, "__origin__", case) for case in get_args(union))
