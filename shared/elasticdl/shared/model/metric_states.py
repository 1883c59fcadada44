"""Metric states as arrays: added up over disjoint sets of batches, and turned into what travels.

Those of training travel in pushes, as one vector (ADR 14). Small states of an evaluation travel in events, and the
master, which has no arrays, adds them up by itself (``elasticdl.master.core.evaluation.task_results``). Large ones are
stored in parts (``StoredStates``). A part can be added to a sum without the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.tasks import MetricStates, StatesFragment, StatesPart
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.compression import decompressed

MetricArrays = Mapping[str, list[npt.NDArray[np.float64]]]
"""Metric -> its state variables; states of disjoint batches add up. The mean loss is the metric ``loss``."""
PART_VALUES_MAX = 1 << 16
"""Values in a part of stored states: 512 KiB before they are compressed."""
PART_BYTES_MAX = 2 * 8 * PART_VALUES_MAX + (1 << 20)
"""The largest part before it is compressed: its values, and the names of its metrics."""
VARIABLES_MAX = 1 << 12
"""Most state variables of a metric."""
VALUES_MAX = 1 << 27
"""Most values of a state variable: the confusion matrix of 11,000 classes."""
_COMPRESSION = 1
_VALUE_BYTES = 8


def sum_states(many: Iterable[MetricArrays]) -> MetricArrays:
    """Add up states of disjoint batches, in their order; the arrays are the caller's.

    A metric that only some of them have is the sum over those.

    Raises:
        ValueError: a metric has another number of variables, or other shapes, in one of them.
    """
    total: dict[str, list[npt.NDArray[np.float64]]] = {}
    for states in many:
        for name, arrays in states.items():
            known = total.get(name)
            total[name] = (
                [array.copy() for array in arrays]
                if known is None
                else [mine + theirs for mine, theirs in zip(known, arrays, strict=True)]
            )
    return total


def encode_states(states: MetricArrays) -> MetricStates:
    """Metric states as they travel."""
    return {name: tuple(np.asarray(array, "<f8").tobytes() for array in arrays) for name, arrays in states.items()}


def decode_states(states: MetricStates) -> dict[str, list[npt.NDArray[np.float64]]]:
    """Inverse of ``encode_states``, but for the arrays' shapes: they come out flat."""
    return {name: [np.frombuffer(array, "<f8") for array in arrays] for name, arrays in states.items()}


def pack_states(states: MetricStates) -> Iterator[bytes]:
    """The parts in which states are stored, compressed; each is smaller than a message of the broker."""
    fragments: list[StatesFragment] = []
    room = PART_VALUES_MAX
    for metric, variables in sorted(states.items()):
        for number, variable in enumerate(variables):
            length, offset = len(variable) // _VALUE_BYTES, 0
            while offset < length:
                count = min(room, length - offset)
                values = variable[offset * _VALUE_BYTES : (offset + count) * _VALUE_BYTES]
                fragments.append(
                    StatesFragment(metric=metric, variable=number, length=length, offset=offset, values=values)
                )
                offset, room = offset + count, room - count
                if not room:
                    yield _packed(fragments)
                    fragments, room = [], PART_VALUES_MAX
    if fragments:
        yield _packed(fragments)


def _packed(fragments: list[StatesFragment]) -> bytes:
    return zlib.compress(codec.encode_states_part(StatesPart(fragments=tuple(fragments))), _COMPRESSION)


def add_parts(states: MetricStates, parts: Iterable[bytes]) -> MetricStates:
    """The sum of some states and of stored ones, added in the order of their parts.

    Raises:
        ProtocolError: a part is damaged, or belongs to states of another shape.
    """
    total = {name: [array.copy() for array in arrays] for name, arrays in decode_states(states).items()}
    for part in parts:
        try:
            fragments = codec.decode_states_part(decompressed(part, PART_BYTES_MAX)).fragments
        except zlib.error as error:
            raise ProtocolError(f"stored metric states are damaged: {error}") from error
        for fragment in fragments:
            _add(total, fragment)
    return encode_states(total)


def _add(total: dict[str, list[npt.NDArray[np.float64]]], fragment: StatesFragment) -> None:
    if not (0 <= fragment.variable < VARIABLES_MAX and 0 <= fragment.offset <= fragment.length <= VALUES_MAX):
        raise ProtocolError(f"stored states of metric {fragment.metric} are above the limits")
    variables = total.setdefault(fragment.metric, [])
    while len(variables) <= fragment.variable:
        variables.append(np.zeros(0))
    if not variables[fragment.variable].size:
        variables[fragment.variable] = np.zeros(fragment.length)
    values = np.frombuffer(fragment.values, "<f8")
    end = fragment.offset + len(values)
    if len(variables[fragment.variable]) != fragment.length or end > fragment.length:
        raise ProtocolError(f"stored states of metric {fragment.metric} have another shape than those before")
    variables[fragment.variable][fragment.offset : end] += values
