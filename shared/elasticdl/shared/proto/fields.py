"""What a dataclass says of its protobuf message besides names and types, in ``Annotated``; see ``schema.py``.

======================  ===================================================
``Annotated[X, "Y"]``   the message for the tuple or union is called ``Y``
``Uint64``              an integer that is not signed
======================  ===================================================
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, TypeAlias, get_args


class Rule(Enum):
    """How a field differs from others of its type."""

    UNSIGNED = "unsigned"


Uint64: TypeAlias = Annotated[int, Rule.UNSIGNED]


def cases(union: Any) -> tuple[type, ...]:
    """The classes of a union."""
    return tuple(getattr(case, "__origin__", case) for case in get_args(union))
