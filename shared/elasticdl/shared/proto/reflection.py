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
from textwrap import indent
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from elasticdl.shared.errors import ElasticDLError, InvariantError, ProtocolError

T = TypeVar("T")
Write: TypeAlias = Callable[[Any, Any], None]
"""(message, value): fill a message from a value."""
Decode: TypeAlias = Callable[[Any], Any]
"""message -> value."""
Express: TypeAlias = Callable[[str], str]
"""Source code of an expression (or of a target) -> source code that uses it."""

_SCALARS: Mapping[type, frozenset[int]] = {
    int: frozenset({FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64}),
    float: frozenset({FieldDescriptor.TYPE_DOUBLE}),
    str: frozenset({FieldDescriptor.TYPE_STRING}),
    bytes: frozenset({FieldDescriptor.TYPE_BYTES}),
    bool: frozenset({FieldDescriptor.TYPE_BOOL}),
}


def _same(source: str) -> str:
    return source


@dataclass(frozen=True, slots=True)
class _Value:
    """How one value is converted.

    Attributes:
        read: makes the value from what protobuf gives.
        encode: makes what protobuf takes from the value.
        write: name of the function that fills a message from the value; empty for scalars and enums.
    """

    read: Express = _same
    encode: Express = _same
    write: str = ""


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field of a dataclass is converted, in functions with a parameter ``message``.

    Attributes:
        read: statements that assign the field's value to a target.
        write: statements that set the field of the message.
    """

    read: Express
    write: Express


_NAMES: dict[str, Any] = {}
"""What generated source code uses, by name."""


def _named(role: str, thing: Any) -> str:
    name = f"{role}_{len(_NAMES)}"
    _NAMES[name] = thing
    return name


def _function(role: str, parameters: str, body: Iterable[str]) -> str:
    """Compile a function, and return its name."""
    source = f"def function({parameters}):\n" + indent("\n".join(body), "    ")
    exec(source, _NAMES)  # noqa: S102  All names are fields of our own classes.
    return _named(role, _NAMES.pop("function"))


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


_PLAIN_TEXT = _named("plain_text", _plain_text)
_READ_ONLY, _EMPTY = _named("read_only", MappingProxyType), _named("empty", MappingProxyType({}))


def _enum(kind: type[Enum], descriptor: Any, place: str) -> _Value:
    prefix = snake_case(kind.__name__).upper()
    wanted = {f"{prefix}_{member.name}": member for member in kind}
    if set(descriptor.values_by_name) - {f"{prefix}_UNSPECIFIED"} != set(wanted):
        raise _mismatch(place, f"{descriptor.full_name} has other values than {kind.__name__}")
    number_of = {member: descriptor.values_by_name[name].number for name, member in wanted.items()}
    numbers = _named("numbers", number_of)
    members = _named("members", {number: member for member, number in number_of.items()})
    return _Value(read=lambda source: f"{members}[{source}]", encode=lambda source: f"{numbers}[{source}]")


def _scalar(kind: type, field: Any, place: str) -> _Value:
    if field.type not in _SCALARS.get(kind, frozenset()):
        raise _mismatch(place, f"{kind!r} can't be carried by the type of {field.full_name}")
    return _Value(encode=lambda source: f"{_PLAIN_TEXT}({source})") if kind is str else _Value()


def _pair(hints: tuple[Any, ...], descriptor: Any, place: str) -> _Value:
    if hints != (int, int) or len(descriptor.fields) != 2:
        raise _mismatch(place, "only pairs of integers have a message")
    low, high = (field.name for field in descriptor.fields)
    write = _function("write", "message, value", [f"message.{low}, message.{high} = value"])
    return _Value(read=lambda source: f"({source}.{low}, {source}.{high})", write=write)


def _only_oneof(descriptor: Any, place: str) -> str:
    if len(descriptor.oneofs) != 1 or len(descriptor.oneofs[0].fields) != len(descriptor.fields):
        raise _mismatch(place, f"{descriptor.full_name} should hold nothing but a oneof")
    return str(descriptor.oneofs[0].name)


def _only_repeated(descriptor: Any, place: str) -> Any:
    if len(descriptor.fields) != 1 or not descriptor.fields[0].is_repeated:
        raise _mismatch(place, f"{descriptor.full_name} should hold nothing but one repeated field")
    return descriptor.fields[0]


def _union(hint: Any, descriptor: Any, oneof: str, place: str) -> tuple[Write, Decode]:
    """A union of dataclasses as the oneof ``oneof`` of a message, which may have other fields besides."""
    fields = {field.name: field for field in descriptor.oneofs_by_name[oneof].fields}
    kinds = {snake_case(kind.__name__): kind for kind in get_args(hint)}
    if fields.keys() != kinds.keys():
        raise _mismatch(place, f"the cases differ: {sorted(fields.keys() ^ kinds.keys())}")
    converters = {name: _message(kind, fields[name].message_type) for name, kind in kinds.items()}
    decoders = {name: decode for name, (_, decode) in converters.items()}
    writers = {kind: (name, converters[name][0]) for name, kind in kinds.items()}

    def write(message: Any, value: Any) -> None:
        name, write_case = writers[type(value)]
        chosen = getattr(message, name)
        chosen.SetInParent()  # a case without any field set has to be seen as chosen all the same
        write_case(chosen, value)

    def decode(message: Any) -> Any:
        name = message.WhichOneof(oneof)
        if name is None:
            raise ProtocolError(
                f"a {descriptor.full_name} without {oneof}, or of a kind that this version does not know"
            )
        return decoders[name](getattr(message, name))

    return write, decode


def _converted(write: Write, decode: Decode) -> _Value:
    name = _named("decode", decode)
    return _Value(read=lambda source: f"{name}({source})", write=_named("write", write))


def _either(condition: str, then: str, otherwise: str) -> str:
    return f"if {condition}:\n{indent(then, '    ')}\nelse:\n{indent(otherwise, '    ')}"


def _assigned(expression: str, write: Express) -> _Field:
    return _Field(lambda target: f"{target} = {expression}", write)


def _value(hint: Any, field: Any, place: str) -> _Value:
    """How one element (of a field, a tuple or a map) is converted."""
    hint = _unwrap(hint)
    descriptor = field.message_type
    if descriptor is None:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _enum(hint, field.enum_type, place)
        return _scalar(hint, field, place)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _converted(*_message(hint, descriptor))
    if _is_union(hint):
        return _converted(*_union(hint, descriptor, _only_oneof(descriptor, place), place))
    if get_origin(hint) is tuple:
        arguments = get_args(hint)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            inner = _repeated(arguments[0], _only_repeated(descriptor, place), place)
            decode = _function("decode", "message", [inner.read("values"), "return values"])
            write = _function("write", "message, values", [inner.write("values")])
            return _Value(read=lambda source: f"{decode}({source})", write=write)
        return _pair(arguments, descriptor, place)
    raise _mismatch(place, f"no rule for {hint!r}")


def _repeated(hint: Any, field: Any, place: str) -> _Field:
    found, value = f"message.{field.name}", _value(hint, field, place)
    sequence_of = _named("sequence_of", getattr(hint, "sequence_of", None))

    def read(target: str) -> str:
        each = value.read("each")
        if hasattr(hint, "sequence_of"):
            return f"{target} = {sequence_of}({each} for each in {found})"
        # A slice is a list, through which Python iterates faster than through protobuf's sequences.
        if each == "each":
            return f"{target} = tuple(found[:]) if (found := {found}) else ()"
        loop = f"items = []\nfor each in found[:]: items.append({each})\n{target} = tuple(items)"
        return _either(f"found := {found}", loop, f"{target} = ()")

    def write(source: str) -> str:
        if value.write:
            return f"if {source}:\n    add = {found}.add\n    for each in {source}: {value.write}(add(), each)"
        each = value.encode("each")
        all_of = source if each == "each" else f"[{each} for each in {source}]"
        return f"if {source}: {found}.extend({all_of})"

    return _Field(read, write)


def _mapping(hints: tuple[Any, Any], field: Any, place: str) -> _Field:
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        raise _mismatch(place, "a Mapping needs a map")
    found = f"message.{field.name}"
    key = _value(hints[0], entry.fields_by_name["key"], place)
    value = _value(hints[1], entry.fields_by_name["value"], place)

    def read(target: str) -> str:
        loop = f"for key in found: items[{key.read('key')}] = {value.read('found[key]')}"
        return _either(
            f"found := {found}", f"items = {{}}\n{loop}\n{target} = {_READ_ONLY}(items)", f"{target} = {_EMPTY}"
        )

    def write(source: str) -> str:
        target = f"{found}[{key.encode('key')}]"
        set_one = f"{value.write}({target}, each)" if value.write else f"{target} = {value.encode('each')}"
        return f"if {source}:\n    for key, each in {source}.items(): {set_one}"

    return _Field(read, write)


def _single(hint: Any, field: Any, place: str) -> _Field:
    target, value = f"message.{field.name}", _value(hint, field, place)

    def write(source: str) -> str:
        if value.write:
            return f"{target}.SetInParent()\n{value.write}({target}, {source})"
        is_text = field.type == FieldDescriptor.TYPE_STRING
        return (f"if {source}: " if is_text else "") + f"{target} = {value.encode(source)}"

    return _assigned(value.read(target), write)


def _absent_as(default: Any, name: str, field: _Field) -> _Field:
    """Let a field with presence stand for ``default`` while it is absent."""
    absent = _named("default", default)

    def read(target: str) -> str:
        return _either(f"message.HasField({name!r})", field.read(target), f"{target} = {absent}")

    def write(source: str) -> str:
        return f"if {source} is not None:\n" + indent(field.write(source), "    ")

    return _Field(read, write)


def _field(hint: Any, default: Any, name: str, descriptor: Any) -> _Field:
    """How one field of a dataclass is written into and read from its message."""
    place = f"{descriptor.full_name}.{name}"
    hint = _unwrap(hint)
    if name in descriptor.oneofs_by_name:
        union = _converted(*_union(hint, descriptor, name, place))
        return _assigned(union.read("message"), lambda source: f"{union.write}(message, {source})")
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
    single = _single(hint, field, place)
    if field.message_type is None and field.has_presence:
        return _absent_as(default, name, single)
    return single


_MESSAGES: dict[type, tuple[Write, Decode]] = {}


def _message(kind: type, descriptor: Any) -> tuple[Write, Decode]:
    """The conversions of a dataclass; built once per class."""
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind.__name__ not in (descriptor.name, descriptor.name.removesuffix("Value")):
        raise _mismatch(descriptor.full_name, f"a {kind.__name__} is expected")
    hints = get_type_hints(kind)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    fields = {name: _field(hints[name], default, name, descriptor) for name, default in defaults.items()}
    in_message = {field.containing_oneof.name if _in_real_oneof(field) else field.name for field in descriptor.fields}
    if in_message != fields.keys():
        raise _mismatch(descriptor.full_name, f"not in {kind.__name__}: {sorted(in_message - fields.keys())}")
    write = _function(
        "write", "message, value", [each.write(f"value.{name}") for name, each in fields.items()] or ["pass"]
    )
    _MESSAGES[kind] = _NAMES[write], _NAMES[_function("decode", "message", _constructed(kind, fields))]
    return _MESSAGES[kind]


def _constructed(kind: type, fields: Mapping[str, _Field]) -> list[str]:
    """The body of a function that makes a value of a dataclass."""
    cls = _named("kind", kind)
    if hasattr(kind, "__post_init__") or "__slots__" not in vars(kind):
        arguments = ", ".join(f"{name}=its_{name}" for name in fields)
        return [*(each.read(f"its_{name}") for name, each in fields.items()), f"return {cls}({arguments})"]
    # The __init__ of a frozen dataclass takes five times as long as the same without ``frozen``. So the value is made
    # by a class that has the same slots, and is then given its own.
    draft = _named("draft", type("Draft", (), {"__slots__": tuple(fields)}))
    reads = [each.read(f"draft.{name}") for name, each in fields.items()]
    return [f"draft = {draft}()", *reads, f"draft.__class__ = {cls}", "return draft"]


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
        self._name = place
        self._new = message
        self._parse: Callable[[bytes], Message] = message.FromString
        self._write, self._decode = (
            _union(kind, descriptor, _only_oneof(descriptor, place), place)
            if _is_union(kind)
            else _message(kind, descriptor)
        )

    def encode(self, value: T) -> bytes:
        """Deterministic: equal values give equal bytes with one version of protobuf."""
        message = self._new()
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
            value: T = self._decode(self._parse(data))
            return value
        except ProtocolError:
            raise
        except (DecodeError, ValueError, ElasticDLError) as error:
            raise ProtocolError(f"not a valid {self._name} ({len(data)} bytes): {error}") from error
        except KeyError as error:
            raise ProtocolError(f"a {self._name} with a value that this version does not know: {error}") from error
