"""Messages as frames: the meta as protobuf, arrays as tensors.

``SCHEMA`` derives the meta from the dataclasses in ``messages.py``. Their ``Separate`` fields are the tensors of the
frame, in the order of the fields. The arrays of all tables travel as one each, behind an int64 tensor that holds three
numbers for each table: its position in the signature, its rows and its width.

A request is checked here for being well-formed (lengths agree with each other); whether it fits the model is the ps
core's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_args, get_type_hints

import numpy as np

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.proto.fields import Rule
from elasticdl.shared.proto.schema import Codec, Schema, bare_hint
from elasticdl.shared.wire.frames import Tensor
from elasticdl.shared.wire.messages import NO_FLOATS, NO_IDS, Reply, Request, TableGradients, TableIds

_FLOATS, _IDS = np.dtype(np.float32), np.dtype(np.int64)
_TENSORS_OF_TABLES: dict[type, list[np.dtype[Any]]] = {TableIds: [_IDS, _IDS], TableGradients: [_IDS, _IDS, _FLOATS]}


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply of a ps, and the incarnation that gives it."""

    incarnation: str
    reply: Reply


SCHEMA = Schema("elasticdl/shared/proto/ps.proto", "elasticdl.v1.wire", (Annotated[Request, "Request"], Answer))
_REQUEST: Codec[Request] = SCHEMA.codec(cast(Any, Request))
_ANSWER = SCHEMA.codec(Answer)


def encode_request(request: Request) -> tuple[bytes, list[Tensor]]:
    """Meta and tensors of a request."""
    return _REQUEST.encode(request), _tensors_of(request)


def decode_request(meta: bytes, tensors: Sequence[Tensor]) -> Request:
    """Inverse of ``encode_request``; arrays are views of ``tensors``. Raises ``ProtocolError``."""
    request = _REQUEST.decode(meta)
    _attach(request, tensors)
    return request


def encode_reply(reply: Reply, incarnation: str) -> tuple[bytes, list[Tensor]]:
    """Meta and tensors of a reply."""
    return _ANSWER.encode(Answer(incarnation, reply)), _tensors_of(reply)


def decode_reply(meta: bytes, tensors: Sequence[Tensor]) -> tuple[Reply, str]:
    """Inverse of ``encode_reply``: the reply and the answering incarnation. Raises ``ProtocolError``."""
    answer = _ANSWER.decode(meta)
    _attach(answer.reply, tensors)
    return answer.reply, answer.incarnation


def _separate_fields(kind: type) -> tuple[dict[str, type | None], list[np.dtype[Any]]]:
    """The fields of a message that are tensors, and the types of these tensors.

    Returns:
        Name -> the class of its tables; None: the field is one array.
    """
    fields: dict[str, type | None] = {}
    dtypes: list[np.dtype[Any]] = []
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint, notes = bare_hint(hints[field.name])
        if Rule.SEPARATE not in notes:
            continue
        first, *_, last = get_args(hint)  # Of a tuple: the class of its elements. Of an array: shape and dtype.
        fields[field.name] = first if first in _TENSORS_OF_TABLES else None
        dtypes += _TENSORS_OF_TABLES.get(first) or [np.dtype(get_args(last)[0])]
    return fields, dtypes


_SEPARATE = {kind: _separate_fields(kind) for kind in (*get_args(Request), *get_args(Reply))}


def _tensors_of(message: Request | Reply) -> list[Tensor]:
    tensors: list[Tensor] = []
    for name, tables in _SEPARATE[type(message)][0].items():
        value = getattr(message, name)
        if tables is None:
            tensors.append(value)
        else:
            tensors += _tensors_of_tables(value, with_gradients=tables is TableGradients)
    return tensors


def _tensors_of_tables(tables: Sequence[Any], *, with_gradients: bool) -> list[Tensor]:
    layout: list[int] = []
    for table in tables:
        layout += (table.table, table.ids.size, table.gradients.shape[1] if with_gradients else table.width)
    tensors = [np.array(layout, np.int64), _joined([table.ids for table in tables], NO_IDS)]
    if with_gradients:
        tensors.append(_joined([table.gradients.reshape(-1) for table in tables], NO_FLOATS))
    return tensors


def _attach(message: Request | Reply, tensors: Sequence[Tensor]) -> None:
    """Set the fields of a decoded message that travelled beside its meta."""
    fields, dtypes = _SEPARATE[type(message)]
    if [tensor.dtype for tensor in tensors] != dtypes:
        raise ProtocolError(f"tensors of {[str(tensor.dtype) for tensor in tensors]} were not expected here")
    left = iter(tensors)
    for name, tables in fields.items():
        if tables is None:
            value: Any = next(left)
        elif tables is TableIds:
            value = _id_tables(next(left), next(left))
        else:
            value = _gradient_tables(next(left), next(left), next(left))
        object.__setattr__(message, name, value)


def _id_tables(layout: Tensor, ids: Tensor) -> tuple[TableIds, ...]:
    tables, rows, widths = _layout(layout)
    parts = zip(tables, widths, _split(ids, rows), strict=True)
    return tuple([TableIds(table=table, width=width, ids=own) for table, width, own in parts])


def _gradient_tables(layout: Tensor, ids: Tensor, floats: Tensor) -> tuple[TableGradients, ...]:
    tables, rows, widths = _layout(layout)
    gradients = _split(floats, [count * width for count, width in zip(rows, widths, strict=True)])
    parts = zip(tables, rows, widths, _split(ids, rows), gradients, strict=True)
    return tuple(
        [
            TableGradients(table=table, ids=own, gradients=flat.reshape(count, width))
            for table, count, width, own, flat in parts
        ]
    )


def _layout(layout: Tensor) -> tuple[list[int], list[int], list[int]]:
    """Positions, rows and widths of the tables of a frame."""
    numbers: list[int] = layout.tolist()
    if len(numbers) % 3 or min(numbers, default=0) < 0:
        raise ProtocolError("the layout of tables is not a list of three numbers from 0 for each table")
    return numbers[::3], numbers[1::3], numbers[2::3]


def _joined(parts: Sequence[Tensor], nothing: Tensor) -> Tensor:
    match len(parts):
        case 0:
            return nothing
        case 1:
            return parts[0]
        case _:
            return np.concatenate(parts)


def _split(flat: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    if sum(lengths) != flat.size:
        raise ProtocolError(f"a tensor of {flat.size} elements for slices of {sum(lengths)}")
    parts, start = [], 0
    for length in lengths:
        parts.append(flat[start : start + length])
        start += length
    return parts
