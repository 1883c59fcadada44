"""Protobuf messages for dataclasses, and the conversion between both, derived from the dataclasses' type hints.

Messages exist in no other form: ``Schema`` makes them when a process starts, and ``published.py`` prints them as a
``.proto`` file for other languages and tools. Knows no particular dataclass: ``messages/codec.py`` names them.

==============================  =================================================================================
type hint                       protobuf
==============================  =================================================================================
``int float str bytes bool``    int64 (``Uint64``: uint64), double, string, bytes, bool; NewTypes as what they wrap
``Enum``                        an enum; the members are numbered from 1: ``JOB_STATE_STARTING = 1``
dataclass                       a message with the same field names
``X | None``                    a field that may be absent
``tuple[X, ...]``               repeated; inside a map, a message with one repeated field ``values``
``Sequence[X]``                 repeated; read into a tuple, or into what ``X.sequence_of`` makes of the elements
``tuple[int, int]``             ``Range``, a message with two fields; or that of a ``Pair``
``Separate[X]``                 nothing: who decodes a message sets this field of its value
``Mapping[K, V]``               map
union of dataclasses            a oneof with the field's name; inside a tuple, a message that holds only a oneof
==============================  =================================================================================

A field's number is its place in the dataclass, and the cases of a union after other fields begin at ``FIRST_CASE``. So
fields are only added behind the others, and before the union; cases at its end.
If the default of a field is not zero, the field is ``optional``: records from before it get the default.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from textwrap import indent
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from elasticdl.shared.errors import ElasticDLError, InvariantError, ProtocolError
from elasticdl.shared.proto.fields import RANGE, Pair, Rule

T = TypeVar("T")
Express: TypeAlias = Callable[[str], str]
"""Source code of an expression (or of a target) -> source code that uses it."""

FIRST_CASE = 20
"""Number of the first case of a union that is the last field of a message: fields can be added before it."""
_MESSAGE = FieldDescriptorProto.TYPE_MESSAGE
_SCALARS: Mapping[type, FieldDescriptorProto.Type.ValueType] = {
    int: FieldDescriptorProto.TYPE_INT64,
    float: FieldDescriptorProto.TYPE_DOUBLE,
    str: FieldDescriptorProto.TYPE_STRING,
    bytes: FieldDescriptorProto.TYPE_BYTES,
    bool: FieldDescriptorProto.TYPE_BOOL,
}
_ALL: Mapping[type, Collection[str]] = MappingProxyType({})


def _same(source: str) -> str:
    return source


@dataclass(frozen=True, slots=True)
class _Value:
    """The type of one value, and how it is converted.

    Attributes:
        message: name of its message or enum; empty for scalars.
        read: makes the value from what protobuf gives.
        encode: makes what protobuf takes from the value.
        decode: name of the function that makes the value from a message; of dataclasses and unions.
        write: name of the function that fills a message from the value; empty for scalars and enums.
    """

    type: FieldDescriptorProto.Type.ValueType
    message: str = ""
    read: Express = _same
    encode: Express = _same
    decode: str = ""
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


def _snake_case(name: str) -> str:
    """``TaskFinished`` -> ``task_finished``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def bare_hint(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type hint without NewTypes and ``Annotated``, and what the latter says."""
    notes: tuple[Any, ...] = ()
    while hasattr(hint, "__supertype__") or get_origin(hint) is Annotated:
        notes += getattr(hint, "__metadata__", ())
        hint = getattr(hint, "__supertype__", None) or hint.__origin__
    return hint, notes


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (UnionType, Union)


def _no_rule(hint: Any) -> InvariantError:
    return InvariantError(f"there is no rule for {hint!r} in messages")


def _plain_text(value: str) -> str:
    # Tracebacks and file names of users may hold lone surrogates, which protobuf refuses.
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def _either(condition: str, then: str, otherwise: str) -> str:
    return f"if {condition}:\n{indent(then, '    ')}\nelse:\n{indent(otherwise, '    ')}"


def _writes(fields: Mapping[str, _Field]) -> list[str]:
    return [each.write(f"value.{name}") for name, each in fields.items()] or ["pass"]


class Schema:
    """The messages of a file.

    Args:
        file: the path of the published schema below the root of imports.
        roots: dataclasses, and unions with a name. What they contain becomes messages as well.
        only: dataclass -> the fields to decode, which saves time. Other dataclasses are decoded completely. The values
            lack the other fields: to read one is an ``AttributeError``.

    Attributes:
        docs: name of a message or enum -> the first sentences of its class' docstring.
    """

    def __init__(
        self, file: str, package: str, roots: Iterable[Any], only: Mapping[type, Collection[str]] = _ALL
    ) -> None:
        self._only = only
        self.file = FileDescriptorProto(name=file, package=package, syntax="proto3")
        self.docs: dict[str, str] = {}
        self._values: dict[Any, _Value] = {}
        self._numbers = count()
        self._names: dict[str, Any] = {
            "read_only": MappingProxyType,
            "empty": MappingProxyType({}),
            "plain_text": _plain_text,
        }
        for root in roots:
            self._value(root)
        self._pool = DescriptorPool()
        self._pool.AddSerializedFile(self.file.SerializeToString())

    def codec(self, kind: type[T]) -> Codec[T]:
        """The codec for a dataclass; also for a union."""
        value = self._values[bare_hint(kind)[0]]
        return Codec(self.message(value.message), self._names, value.write, value.decode)

    def message(self, name: str) -> type[Message]:
        """The class of a message."""
        return GetMessageClass(self._pool.FindMessageTypeByName(f"{self.file.package}.{name}"))

    # --- generated functions

    def _named(self, role: str, thing: Any) -> str:
        """A name by which generated code finds something."""
        name = f"{role}_{next(self._numbers)}"
        self._names[name] = thing
        return name

    def _function(self, role: str, parameters: str, body: Callable[[], Iterable[str]]) -> str:
        """Name of a function that is compiled when it is first called: a process meets few of all messages."""

        def compiled(*arguments: Any) -> Any:
            source = f"def {name}({parameters}):\n" + indent("\n".join(body()), "    ")
            exec(source, self._names)  # noqa: S102  All names are fields of our own classes.
            return self._names[name](*arguments)

        name = self._named(role, compiled)
        return name

    def _as_message(self, name: str, decode: str, write: str) -> _Value:
        return _Value(_MESSAGE, name, lambda source: f"{decode}({source})", decode=decode, write=write)

    # --- messages

    def _value(self, hint: Any) -> _Value:
        """How one element (of a field, a tuple or a map) is converted."""
        bare, notes = bare_hint(hint)
        if bare in _SCALARS:
            kind = FieldDescriptorProto.TYPE_UINT64 if Rule.UNSIGNED in notes else _SCALARS[bare]
            return _Value(kind, encode=(lambda source: f"plain_text({source})") if bare is str else _same)
        if get_args(bare) == (int, int):
            bare = next((note for note in notes if isinstance(note, Pair)), RANGE)
        if bare not in self._values:
            self._values[bare] = self._new_value(bare, next((note for note in notes if isinstance(note, str)), ""))
        return self._values[bare]

    def _new_value(self, hint: Any, name: str) -> _Value:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return self._enum(hint)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._message(hint)
        if isinstance(hint, Pair):
            return self._pair(hint)
        arguments = get_args(hint)
        if name and _is_union(hint):
            message = DescriptorProto(name=name)
            decode, write = self._union(message, _snake_case(name).removesuffix("_value"), arguments, 1)
            self.file.message_type.append(message)
            return self._as_message(name, decode, write)
        if name and arguments[1:] == (Ellipsis,):
            message = DescriptorProto(name=name)
            inner = self._repeated(message.field.add(name="values", number=1), arguments[0])
            self.file.message_type.append(message)
            decode = self._function("decode", "message", lambda: [inner.read("values"), "return values"])
            return self._as_message(
                name, decode, self._function("write", "message, value", lambda: [inner.write("value")])
            )
        raise _no_rule(hint)

    def _enum(self, kind: type[Enum]) -> _Value:
        prefix = _snake_case(kind.__name__).upper()
        enum = EnumDescriptorProto(name=kind.__name__)
        for number, name in enumerate(("UNSPECIFIED", *(member.name for member in kind))):
            enum.value.add(name=f"{prefix}_{name}", number=number)
        self.file.enum_type.append(enum)
        self._document(kind)
        numbers = self._named("numbers", {member: number for number, member in enumerate(kind, 1)})
        members = self._named("members", dict(enumerate(kind, 1)))
        return _Value(
            FieldDescriptorProto.TYPE_ENUM,
            kind.__name__,
            read=lambda source: f"{members}[{source}]",
            encode=lambda source: f"{numbers}[{source}]",
        )

    def _pair(self, pair: Pair) -> _Value:
        message, (first, second) = self.file.message_type.add(name=pair.message), (pair.first, pair.second)
        scalar = _Value(_SCALARS[int] if pair.is_signed else FieldDescriptorProto.TYPE_UINT64)
        for number, name in enumerate((first, second), 1):
            self._set_type(message.field.add(name=name, number=number), scalar)
        if pair == RANGE:
            self.docs[pair.message] = "Integers [start, end)."
        write = self._function("write", "message, value", lambda: [f"message.{first}, message.{second} = value"])
        return _Value(_MESSAGE, pair.message, lambda source: f"({source}.{first}, {source}.{second})", write=write)

    def _union(self, message: DescriptorProto, oneof: str, kinds: Iterable[type], first: int) -> tuple[str, str]:
        """A union of dataclasses as a oneof of a message, which may have other fields before it.

        Returns:
            Names of the functions that make and write the value.
        """
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=oneof)
        decoders, writers = {}, {}
        for number, kind in enumerate(kinds, first):
            value = self._value(kind)
            if not value.decode:
                raise _no_rule(kind)
            field = message.field.add(name=_snake_case(kind.__name__), number=number, oneof_index=index)
            self._set_type(field, value)
            decoders[field.name] = value.decode
            writers[kind] = field.name, value.write
        names, message_name = self._names, message.name

        def write(message: Any, value: Any) -> None:
            name, write_case = writers[type(value)]
            chosen = getattr(message, name)
            chosen.SetInParent()  # a case without any field set has to be seen as chosen all the same
            names[write_case](chosen, value)

        def decode(message: Any) -> Any:
            name = message.WhichOneof(oneof)
            if name is None:
                raise ProtocolError(f"a {message_name} without {oneof}, or of a kind that this version does not know")
            return names[decoders[name]](getattr(message, name))

        return self._named("decode", decode), self._named("write", write)

    def _message(self, kind: type) -> _Value:
        message = DescriptorProto(name=kind.__name__)
        hints = get_type_hints(kind, include_extras=True)
        fields = {
            each.name: self._field(message, each.name, number, hints[each.name], each.default)
            for number, each in enumerate(dataclasses.fields(kind), 1)
            if Rule.SEPARATE not in bare_hint(hints[each.name])[1]
        }
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
        self.file.message_type.append(message)
        self._document(kind)
        decoded = {name: each for name, each in fields.items() if name in self._only.get(kind, fields)}
        decode = self._function("decode", "message", lambda: self._constructed(kind, decoded))
        return self._as_message(
            kind.__name__, decode, self._function("write", "message, value", lambda: _writes(fields))
        )

    def _document(self, kind: type) -> None:
        self.docs[kind.__name__] = " ".join((kind.__doc__ or "").split("\n\n")[0].split())

    def _constructed(self, kind: type, fields: Mapping[str, _Field]) -> list[str]:
        """The body of a function that makes a value of a dataclass."""
        cls = self._named("kind", kind)
        if hasattr(kind, "__post_init__") or "__slots__" not in vars(kind):
            arguments = ", ".join(f"{name}=its_{name}" for name in fields)
            return [*(each.read(f"its_{name}") for name, each in fields.items()), f"return {cls}({arguments})"]
        # The __init__ of a frozen dataclass takes five times as long as the same without ``frozen``. So the value is
        # made by a class that has the same slots, and is then given its own.
        slots = tuple(each.name for each in dataclasses.fields(kind))
        draft = self._named("draft", type("Draft", (), {"__slots__": slots}))
        reads = [each.read(f"draft.{name}") for name, each in fields.items()]
        return [f"draft = {draft}()", *reads, f"draft.__class__ = {cls}", "return draft"]

    # --- fields

    def _field(self, message: DescriptorProto, name: str, number: int, hint: Any, default: Any) -> _Field:
        """Add a field to a message; returns its conversion."""
        bare, _ = bare_hint(hint)
        origin, arguments = get_origin(bare), get_args(bare)
        if _is_union(bare) and NoneType not in arguments:
            decode, write = self._union(message, name, arguments, FIRST_CASE)
            return _Field(lambda its: f"{its} = {decode}(message)", lambda its: f"{write}(message, {its})")
        field = message.field.add(name=name, number=number)
        if origin is Sequence or (origin is tuple and arguments[1:] == (Ellipsis,)):
            return self._repeated(field, arguments[0])
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(message, field, *arguments)
        if _is_union(bare):
            (hint,) = (each for each in arguments if each is not NoneType)
            return self._optional(field, hint, None)
        if default is not dataclasses.MISSING and default:
            return self._optional(field, hint, default)
        single = self._single(field, hint)
        if field.type == FieldDescriptorProto.TYPE_STRING:  # Most texts are empty, and ``plain_text`` takes time.
            return replace(single, write=lambda source: f"if {source}: {single.write(source)}")
        return single

    def _set_type(self, field: FieldDescriptorProto, value: _Value, *, repeated: bool = False) -> None:
        field.type = value.type
        field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        if value.message:
            field.type_name = f".{self.file.package}.{value.message}"

    def _single(self, field: FieldDescriptorProto, hint: Any) -> _Field:
        target, value = f"message.{field.name}", self._value(hint)
        self._set_type(field, value)

        def write(source: str) -> str:
            if value.write:
                return f"{target}.SetInParent()\n{value.write}({target}, {source})"
            return f"{target} = {value.encode(source)}"

        return _Field(lambda its: f"{its} = {value.read(target)}", write)

    def _optional(self, field: FieldDescriptorProto, hint: Any, default: Any) -> _Field:
        """Let a field with presence stand for ``default`` while it is absent."""
        single = self._single(field, hint)
        if field.type != _MESSAGE:
            field.proto3_optional = True
        present, absent = f"message.HasField({field.name!r})", self._named("default", default)
        return _Field(
            lambda target: _either(present, single.read(target), f"{target} = {absent}"),
            lambda source: f"if {source} is not None:\n" + indent(single.write(source), "    "),
        )

    def _repeated(self, field: FieldDescriptorProto, hint: Any) -> _Field:
        found, value = f"message.{field.name}", self._value(hint)
        self._set_type(field, value, repeated=True)
        sequence_of = getattr(bare_hint(hint)[0], "sequence_of", None)
        make = self._named("sequence_of", sequence_of)

        def read(target: str) -> str:
            each = value.read("each")
            if sequence_of:
                return f"{target} = {make}({each} for each in {found})"
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

    def _mapping(self, message: DescriptorProto, field: FieldDescriptorProto, key_hint: Any, hint: Any) -> _Field:
        found, key, value = f"message.{field.name}", self._value(key_hint), self._value(hint)
        entry = message.nested_type.add(name="".join(map(str.capitalize, field.name.split("_"))) + "Entry")
        entry.options.map_entry = True
        for number, (name, part) in enumerate({"key": key, "value": value}.items(), 1):
            self._set_type(entry.field.add(name=name, number=number), part)
        self._set_type(field, _Value(_MESSAGE, f"{message.name}.{entry.name}"), repeated=True)

        def read(target: str) -> str:
            loop = f"for key in found: items[{key.read('key')}] = {value.read('found[key]')}"
            made = f"items = {{}}\n{loop}\n{target} = read_only(items)"
            return _either(f"found := {found}", made, f"{target} = empty")

        def write(source: str) -> str:
            target = f"{found}[{key.encode('key')}]"
            set_one = f"{value.write}({target}, each)" if value.write else f"{target} = {value.encode('each')}"
            return f"if {source}:\n    for key, each in {source}.items(): {set_one}"

        return _Field(read, write)


class Codec(Generic[T]):
    """Bytes to and from one kind of value."""

    def __init__(self, message: type[Message], functions: Mapping[str, Any], write: str, decode: str) -> None:
        """See ``Schema.codec``.

        Args:
            functions: by name; the first call of one replaces it.
            write: name of the function that fills a message from a value.
            decode: name of the function that makes a value from a message.
        """
        self.message = message
        self._name = message.DESCRIPTOR.full_name
        self._parse: Callable[[bytes], Message] = message.FromString
        self._functions, self._write, self._decode = functions, write, decode

    def encode(self, value: T) -> bytes:
        """Deterministic: equal values give equal bytes with one version of protobuf."""
        message = self.message()
        try:
            self._functions[self._write](message, value)
        except (ValueError, TypeError, KeyError) as error:
            raise InvariantError(f"{type(value).__name__} does not fit its message: {error!r}: {value}") from error
        return bytes(message.SerializeToString(deterministic=True))

    def decode(self, data: bytes) -> T:
        """The inverse of ``encode``. Raises ``ProtocolError`` for other bytes, or those of a newer version."""
        try:
            value: T = self._functions[self._decode](self._parse(data))
            return value
        except ProtocolError:
            raise
        except (DecodeError, ValueError, ElasticDLError) as error:
            raise ProtocolError(f"not a valid {self._name} ({len(data)} bytes): {error}") from error
        except KeyError as error:
            raise ProtocolError(f"a {self._name} with a value that this version does not know: {error}") from error
