"""Numbers in the names of layers, where only the names of variables are known: those in a SavedModel. Pure.

Keras numbers layers without a name in the order in which a process makes them, those inside of others too. In a
notebook that has made another model before, the layers ``dense`` and ``dense_1`` are called ``dense_2`` and
``dense_3``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from elasticdl.layers.embedding import ROWS_SUFFIX

UNKNOWN = "#file"
"""End of a name that must match none: it is unknown which layer it means."""
_NUMBERED = re.compile(rf"(.+?)(?:_(\d+))?((?:{ROWS_SUFFIX})?)")


def renumbered_names(found: Collection[str], wanted: Collection[str], classes: Collection[str]) -> dict[str, str]:
    """Each name in a file -> the name with the numbers that the layers of another model have.

    Numbers are shifted if both models have as many layers of a class, with the same gaps between their numbers.
    Layers whose numbers begin elsewhere and have other gaps match none.

    Args:
        wanted: names of variables of the other model, as that model would have them in a file.
        classes: names that Keras gives to layers of the other model, without a number.
    """
    theirs, mine = _numbers(found, classes), _numbers(wanted, classes)
    renamed: dict[str, str] = {}
    for base in theirs.keys() & mine.keys():
        for number, other in shifted(theirs[base], mine[base]).items():
            old = _name(base, number)
            renamed[old] = f"{old}{UNKNOWN}" if other is None else _name(base, other)
    return {name: "/".join(_with_number(part, renamed) for part in name.split("/")) for name in found}


def shifted(numbers: Collection[int], wanted: Collection[int]) -> dict[int, int | None]:
    """The layers of a class whose numbers begin elsewhere than in another model -> their numbers in that model.

    Args:
        numbers: of the layers; at least one.
        wanted: those of the other model; at least one.

    Returns:
        Empty if both begin with the same number. None: the gaps differ, so it is unknown which layer is which.
    """
    shift = min(wanted) - min(numbers)
    same_gaps = {number + shift for number in numbers} == set(wanted)
    return {number: number + shift if same_gaps else None for number in sorted(numbers)} if shift else {}


def _numbers(names: Iterable[str], classes: Collection[str]) -> Mapping[str, set[int]]:
    """Name without number -> the numbers of the layers with that name."""
    numbers: dict[str, set[int]] = {}
    for base, number in (found for name in names for found in _parts(name)):
        if base in classes:
            numbers.setdefault(base, set()).add(number)
    return numbers


def _parts(name: str) -> Iterator[tuple[str, int]]:
    """(name without number, number) of each layer in the name of a variable."""
    for part in name.split("/")[:-1]:
        if numbered := _NUMBERED.fullmatch(part):
            yield numbered[1], int(numbered[2] or 0)


def _with_number(part: str, renamed: Mapping[str, str]) -> str:
    layer = part.removesuffix(ROWS_SUFFIX)
    return renamed[layer] + part[len(layer) :] if layer in renamed else part


def _name(base: str, number: int) -> str:
    return f"{base}_{number}" if number else base
