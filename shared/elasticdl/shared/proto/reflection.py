"""Conversion between dataclasses and protobuf messages, derived from the dataclasses' type hints.

Built once per class; any disagreement between a dataclass and its message is an InvariantError there and then. Knows
no particular dataclass: ``codec.py`` names them.

==============================  =================================================================================
type hint                       protobuf
==============================  =================================================================================
``int float str bytes bool``    the scalar (NewTypes count as what they wrap)
``Enum``                        an enum whose values are the class's and the member's name: ``JOB_STATE_FAILED``
dataclass                       a message with the same field names
``X | None``                    a message field that may be absent
``tuple[X, ...]``               repeated; a message with one repeated field inside a map
``Sequence[X]``                 repeated; read into a tuple, or into what ``X.sequence_of`` makes of the elements
``tuple[int, int]``             a message with two fields
``Mapping[K, V]``               map
union of dataclasses            a oneof of the field's name, or a message that holds nothing but a oneof
==============================  =================================================================================

A field that is added later is declared ``optional`` in the schema if its default is not zero: records from before
then get the dataclass' default.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Generic, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from elasticdl.shared.errors import ElasticDLError, InvariantError, ProtocolError

T = TypeVar("T")
Encode: TypeAlias = Callable[[Any], Any]
"""A dataclass' field value -> what protobuf takes."""
Decode: TypeAlias = Callable[[Any], Any]
"""What protobuf gives -> a dataclass' field value."""
Write: TypeAlias = Callable[[Any, Any], None]
"""(message, field value): set one field of a message."""
Read: TypeAlias = Callable[[Any], Any]
"""message -> the value of one field."""

_EMPTY: Mapping[Any, Any] = MappingProxyType({})
_SCALARS: Mapping[type, frozenset[int]] = {
    int: frozenset({FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64}),
    float: frozenset({FieldDescriptor.TYPE_DOUBLE}),
    str: frozenset({FieldDescriptor.TYPE_STRING}),
    bytes: frozenset({FieldDescriptor.TYPE_BYTES}),
    bool: frozenset({FieldDescriptor.TYPE_BOOL}),
}


@dataclass(frozen=True, slots=True)
class _Value:
    """How one value is converted.

    Attributes:
        encode: to what protobuf takes; None: as it is.
        write: fill a sub-message from a value; None for scalars and enums.
        decode: from what protobuf gives; None: as it is.
    """

    encode: Encode | None
    decode: Decode | None
    write: Write | None = None


@dataclass(frozen=True, slots=True)
class _Access:
    """How one field of a dataclass is written into its message and read from it.

    Attributes:
        write: (message, value).
        read: message -> value.
        value: the conversion of the value itself, where the message's attribute always holds one value.
        is_collection: a repeated field or a map. An empty one is not written: most are, and a new message has it.
    """

    write: Write
    read: Read
    value: _Value | None = None
    is_collection: bool = False


def snake_case(name: str) -> str:
    """``TaskFinished`` -> ``task_finished``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _unwrap(hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return hint


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (UnionType, Union)


def _mismatch(place: str, why: str) -> InvariantError:
    return InvariantError(f"control.proto does not match the dataclasses at {place}: {why}")


def _plain_text(value: str) -> str:
    # Tracebacks and file names of users may hold lone surrogates, which protobuf refuses.
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def _enum(kind: type[Enum], descriptor: Any, place: str) -> _Value:
    prefix = snake_case(kind.__name__).upper()
    wanted = {f"{prefix}_{member.name}": member for member in kind}
    if set(descriptor.values_by_name) - {f"{prefix}_UNSPECIFIED"} != set(wanted):
        raise _mismatch(place, f"{descriptor.full_name} has other values than {kind.__name__}")
    numbers = {member: descriptor.values_by_name[name].number for name, member in wanted.items()}
    members = {number: member for member, number in numbers.items()}
    return _Value(encode=numbers.__getitem__, decode=members.__getitem__)


def _scalar(kind: type, field: Any, place: str) -> _Value:
    if field.type not in _SCALARS.get(kind, frozenset()):
        raise _mismatch(place, f"{kind!r} can't be carried by the type of {field.full_name}")
    return _Value(encode=_plain_text if kind is str else None, decode=None)


def _pair(hints: tuple[Any, ...], descriptor: Any, place: str) -> _Value:
    if hints != (int, int) or len(descriptor.fields) != 2:
        raise _mismatch(place, "only pairs of integers have a message")
    low, high = (field.name for field in descriptor.fields)

    def write(message: Any, value: tuple[int, int]) -> None:
        setattr(message, low, value[0])
        setattr(message, high, value[1])

    def decode(message: Any) -> tuple[int, int]:
        return getattr(message, low), getattr(message, high)

    return _Value(encode=None, decode=decode, write=write)


def _only_oneof(descriptor: Any, place: str) -> str:
    if len(descriptor.oneofs) != 1 or len(descriptor.oneofs[0].fields) != len(descriptor.fields):
        raise _mismatch(place, f"{descriptor.full_name} should hold nothing but a oneof")
    return str(descriptor.oneofs[0].name)


def _only_repeated(descriptor: Any, place: str) -> Any:
    if len(descriptor.fields) != 1 or not descriptor.fields[0].is_repeated:
        raise _mismatch(place, f"{descriptor.full_name} should hold nothing but one repeated field")
    return descriptor.fields[0]


def _union(hint: Any, descriptor: Any, oneof: str, place: str) -> _Value:
    """A union of dataclasses as the oneof ``oneof`` of a message, which may have other fields besides."""
    fields = {field.name: field for field in descriptor.oneofs_by_name[oneof].fields}
    kinds = {snake_case(kind.__name__): kind for kind in get_args(hint)}
    if fields.keys() != kinds.keys():
        raise _mismatch(place, f"the cases differ: {sorted(fields.keys() ^ kinds.keys())}")
    cases = {name: _message(kind, fields[name].message_type) for name, kind in kinds.items()}
    decoders = {name: case.decode for name, case in cases.items()}
    writers = {kind: (name, cases[name].write) for name, kind in kinds.items()}

    def write(message: Any, value: Any) -> None:
        name, write_case = writers[type(value)]
        chosen = getattr(message, name)
        chosen.SetInParent()  # a case without any field set has to be seen as chosen all the same
        assert write_case
        write_case(chosen, value)

    def decode(message: Any) -> Any:
        name = message.WhichOneof(oneof)
        if name is None:
            raise ProtocolError(
                f"a {descriptor.full_name} without {oneof}, or of a kind that this version does not know"
            )
        decode_case = decoders[name]
        assert decode_case
        return decode_case(getattr(message, name))

    return _Value(encode=None, decode=decode, write=write)


def _value(hint: Any, field: Any, place: str) -> _Value:
    """How one element (of a field, a tuple or a map) is converted."""
    hint = _unwrap(hint)
    descriptor = field.message_type
    if descriptor is None:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _enum(hint, field.enum_type, place)
        return _scalar(hint, field, place)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _message(hint, descriptor)
    if _is_union(hint):
        return _union(hint, descriptor, _only_oneof(descriptor, place), place)
    if get_origin(hint) is tuple:
        arguments = get_args(hint)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            inner = _only_repeated(descriptor, place)
            access = _repeated(arguments[0], inner, place)
            return _Value(encode=None, decode=access.read, write=access.write)
        return _pair(arguments, descriptor, place)
    raise _mismatch(place, f"no rule for {hint!r}")


def _repeated(hint: Any, field: Any, place: str) -> _Access:
    sequence_of = getattr(hint, "sequence_of", tuple)
    name, value = field.name, _value(hint, field, place)
    encode, decode, write_element = value.encode, value.decode, value.write

    def write(message: Any, values: Iterable[Any]) -> None:
        target = getattr(message, name)
        if write_element:
            for element in values:
                write_element(target.add(), element)
        else:
            target.extend(map(encode, values) if encode else values)

    def read(message: Any) -> Any:
        values = getattr(message, name)
        return sequence_of(map(decode, values) if decode else values)

    return _Access(write, read, is_collection=True)


def _mapping(hints: tuple[Any, Any], field: Any, place: str) -> _Access:
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        raise _mismatch(place, "a Mapping needs a map")
    name = field.name
    key = _value(hints[0], entry.fields_by_name["key"], place)
    value = _value(hints[1], entry.fields_by_name["value"], place)
    encode_key, encode, decode, write_value = key.encode, value.encode, value.decode, value.write

    def write(message: Any, values: Mapping[Any, Any]) -> None:
        target = getattr(message, name)
        for each_key, each in values.items():
            wire_key = encode_key(each_key) if encode_key else each_key
            if write_value:
                write_value(target[wire_key], each)
            else:
                target[wire_key] = encode(each) if encode else each

    def read(message: Any) -> Mapping[Any, Any]:
        values = getattr(message, name)
        if not values:
            return _EMPTY
        if decode:
            return MappingProxyType({each_key: decode(values[each_key]) for each_key in values})
        return MappingProxyType(dict(values))

    return _Access(write, read, is_collection=True)


def _single(hint: Any, field: Any, place: str) -> _Access:
    name, value = field.name, _value(hint, field, place)
    encode, decode, write_value = value.encode, value.decode, value.write

    def write(message: Any, each: Any) -> None:
        if write_value:
            target = getattr(message, name)
            target.SetInParent()
            write_value(target, each)
        else:
            setattr(message, name, encode(each) if encode else each)

    def read(message: Any) -> Any:
        each = getattr(message, name)
        return decode(each) if decode else each

    return _Access(write, read, value)


def _absent_as(default: Any, name: str, access: _Access) -> _Access:
    """Let a field with presence stand for ``default`` while it is absent."""
    write_present, read_present = access.write, access.read

    def write(message: Any, each: Any) -> None:
        if each is not None:
            write_present(message, each)

    def read(message: Any) -> Any:
        return read_present(message) if message.HasField(name) else default

    return _Access(write, read)


def _field(hint: Any, default: Any, name: str, descriptor: Any) -> _Access:
    """How one field of a dataclass is written into and read from its message."""
    place = f"{descriptor.full_name}.{name}"
    hint = _unwrap(hint)
    if name in descriptor.oneofs_by_name:
        union = _union(hint, descriptor, name, place)
        assert union.write and union.decode
        return _Access(union.write, union.decode)
    if name not in descriptor.fields_by_name:
        raise _mismatch(place, "the message has no such field")
    field = descriptor.fields_by_name[name]
    if get_origin(hint) is Sequence or (get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis):
        return _repeated(get_args(hint)[0], field, place)
    if isinstance(origin := get_origin(hint), type) and issubclass(origin, Mapping):
        return _mapping(get_args(hint), field, place)
    if _is_union(hint) and NoneType in get_args(hint):
        (inner,) = (each for each in get_args(hint) if each is not NoneType)
        return _absent_as(None, name, _single(inner, field, place))
    access = _single(hint, field, place)
    if field.message_type is None and field.has_presence:
        return _absent_as(default, name, access)
    return access


_MESSAGES: dict[type, _Value] = {}


def _message(kind: type, descriptor: Any) -> _Value:
    """How a dataclass is converted; built once per class."""
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind.__name__ not in (descriptor.name, descriptor.name.removesuffix("Value")):
        raise _mismatch(descriptor.full_name, f"a {kind.__name__} is expected")
    hints = get_type_hints(kind)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    accesses = {name: _field(hints[name], default, name, descriptor) for name, default in defaults.items()}
    in_message = {field.containing_oneof.name if _in_real_oneof(field) else field.name for field in descriptor.fields}
    if in_message != accesses.keys():
        raise _mismatch(descriptor.full_name, f"not in {kind.__name__}: {sorted(in_message - accesses.keys())}")
    write, decode = _written_out(kind, accesses)
    _MESSAGES[kind] = _Value(encode=None, decode=decode, write=write)
    return _MESSAGES[kind]


def _written_out(kind: type, accesses: Mapping[str, _Access]) -> tuple[Write, Decode]:
    """The conversion of a dataclass with one line per field: half the time of a loop over its fields."""
    known: dict[str, Any] = {"kind": kind}
    writes, reads = [], []
    for name, access in accesses.items():
        write, read = f"write_{name}(message, value.{name})", f"read_{name}(message)"
        known |= {f"write_{name}": access.write, f"read_{name}": access.read}
        if (value := access.value) is not None:
            known |= {f"encode_{name}": value.encode, f"decode_{name}": value.decode}
            read = f"decode_{name}(message.{name})" if value.decode else f"message.{name}"
            if value.write is None:
                write = f"message.{name} = " + (f"encode_{name}(value.{name})" if value.encode else f"value.{name}")
        is_sized = access.is_collection or (value is not None and value.encode is _plain_text)
        writes.append(f"if value.{name}: {write}" if is_sized else write)
        reads.append(f"{name}={read}")
    body = "\n    ".join(writes) or "pass"
    source = f"def write(message, value):\n    {body}\ndef decode(message):\n    return kind({', '.join(reads)})"
    exec(source, known)  # noqa: S102  All names are fields of our own classes.
    return known["write"], known["decode"]


def _in_real_oneof(field: Any) -> bool:
    # ``optional`` scalars live in a synthetic oneof whose name begins with an underscore.
    return field.containing_oneof is not None and not field.containing_oneof.name.startswith("_")


class Codec(Generic[T]):
    """Bytes to and from one kind of value."""

    def __init__(self, kind: Any, message: type[Message]) -> None:
        """Derive the conversion.

        Args:
            kind: a dataclass, or a union of dataclasses.
            message: its message; for a union one that holds nothing but a oneof.

        Raises:
            InvariantError: they do not correspond completely and exactly.
        """
        descriptor = message.DESCRIPTOR
        place = descriptor.full_name
        value = (
            _union(kind, descriptor, _only_oneof(descriptor, place), place)
            if _is_union(kind)
            else _message(kind, descriptor)
        )
        assert value.write and value.decode
        self._name = place
        self._message = message
        self._write = value.write
        self._decode = value.decode

    def encode(self, value: T) -> bytes:
        """Deterministic: equal values give equal bytes with one version of protobuf."""
        message = self._message()
        try:
            self._write(message, value)
        except (ValueError, TypeError, KeyError) as error:
            raise InvariantError(f"{type(value).__name__} does not fit its message: {error!r}: {value}") from error
        return bytes(message.SerializeToString(deterministic=True))

    def decode(self, data: bytes) -> T:
        """The inverse of ``encode``.

        Raises:
            ProtocolError: the bytes are not such a value, or one of a newer version.
        """
        try:
            return cast("T", self._decode(self._message.FromString(data)))
        except ProtocolError:
            raise
        except (DecodeError, ValueError, ElasticDLError) as error:
            raise ProtocolError(f"not a valid {self._name} ({len(data)} bytes): {error}") from error
        except KeyError as error:
            raise ProtocolError(f"a {self._name} with a value that this version does not know: {error}") from error
