"""JSON lines: one JSON object in each line, UTF-8, empty lines skipped. The keys of all objects are the columns.

A record's raw bytes are its line without the line break. Values are parsed by pyarrow; an absent key and ``null`` are
missing values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from elasticdl.shared.data.column_types import (
    EXACT_MAX,
    FoundColumn,
    absent_column,
    arrow_type,
    element_type,
    exact_integers,
    wider_type,
)
from elasticdl.shared.data.formats.arrow_columns import found, natural_type
from elasticdl.shared.data.formats.data_format import DataObject, PositionFormat, Scan
from elasticdl.shared.data.formats.segments import Positions
from elasticdl.shared.data.formats.text import (
    BYTE_ORDER_MARK,
    NEWLINE,
    RECORD_BYTES_MAX,
    TextParser,
    TextScan,
    cut_at,
    shown,
)
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.data.schema import DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

_CHANGED = re.compile(r"Column\(/([^/)]+).*\) changed from (\w+) to (\w+)")
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_ARROW_KINDS = {"array": "a list", "object": "an object"}
_NESTED = (b"[" * 64, b"[ " * 64, b"}" * 64, b"]}" * 64)
"""Signs of values that may be nested so deeply that pyarrow takes minutes for them, or crashes."""


def cut(data: bytes, *, final: bool) -> tuple[list[bytes], Positions, int]:
    """Split bytes that begin with a record into records; see ``csv_file.cut``."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == NEWLINE)
    if final and (not ends.size or ends[-1] + 1 < len(data)):
        ends = np.append(ends, len(data))
    return cut_at(data, ends)


class Parser(TextParser):
    """Turns records of one file into typed columns.

    Args:
        types: of columns. Other columns are inferred if ``infer``, else left out.
    """

    def __init__(self, uri: str, types: Mapping[str, str], *, infer: bool = False) -> None:
        super().__init__(uri)
        self._types = types
        self._converted = [name for name, kind in types.items() if kind.endswith("]") or kind == "float16"]
        self._options = pa.json.ParseOptions(
            explicit_schema=pa.schema([(name, _json_type(kind)) for name, kind in types.items()]),
            unexpected_field_behavior="infer" if infer else "ignore",
        )

    def _parse(self, lines: list[bytes]) -> pa.Table:
        data = b"\n".join(lines)
        data.decode()
        if any(sign in data for sign in _NESTED):
            for line in lines:
                _check_nesting(line)
        table = pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=min(len(data) + 2, RECORD_BYTES_MAX)),
            parse_options=self._options,
        )
        if table.num_rows != len(lines):
            raise ValueError("it has several values")
        for name in self._converted:
            place = table.column_names.index(name)
            table = table.set_column(place, name, table[name].cast(arrow_type(self._types[name])))
        return table

    def _explain(
        self, lines: list[bytes], first: int, error: Exception, parse: Callable[[list[bytes]], object]
    ) -> UserError:
        """Find the first record that is invalid, or that does not fit those before it, by bisection."""
        good, bad = 0, len(lines)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                parse(lines[:middle])
                good = middle
            except (pa.ArrowInvalid, ValueError) as part_error:
                bad, error = middle, part_error
        line = lines[bad - 1]
        return UserError(
            f"{display(self._uri)}, record {first + bad - 1} (from 0): {self._reason(line, error)}: {shown(line)}",
            hint="Correct or remove that record, or leave the column out with --columns.",
        )

    def _reason(self, line: bytes, error: Exception) -> str:
        try:
            record = json.loads(line)
        except UnicodeDecodeError:
            return "it is not UTF-8 text"
        except json.JSONDecodeError as wrong:
            return f"it is not JSON ({wrong.msg}, character {wrong.pos})"
        except RecursionError:
            return "its values are nested too deeply"
        if not isinstance(record, dict):
            return f"it is {_kind(record)}, not a JSON object"
        for name, kind in self._types.items():
            try:
                Parser(self._uri, {name: kind})._parse([line])
            except (pa.ArrowInvalid, ValueError):
                return f"column {name!r} is not {kind}: {json.dumps(record.get(name))[:80]}"
        if changed := _CHANGED.search(str(error)):
            name, *kinds = changed.groups()
            before, now = (_ARROW_KINDS.get(kind, f"a {kind}") for kind in kinds)
            return f"column {name!r} is {now}, and {before} in records before it"
        return str(error)


def _json_type(kind: str) -> pa.DataType:
    """The Arrow type for pyarrow's JSON reader, which knows neither float16 nor large or fixed lists."""
    element = "float32" if element_type(kind) == "float16" else element_type(kind)
    flat = arrow_type(element)
    return flat if element_type(kind) == kind else pa.list_(flat)


def _check_nesting(line: bytes) -> None:
    try:
        json.loads(line)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")


class TypeLearner:
    """Learns the columns of records, and their types."""

    def __init__(self, uri: str, options: ReaderOptions) -> None:
        self._uri = uri
        self._options = options
        self._types = dict(options.column_types)
        """Given types, and string for columns whose texts pyarrow would take for timestamps."""
        self._found: dict[str, FoundColumn] = {}
        self.records = 0

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        """What was found in the columns, in the order in which they appear."""
        return tuple(self._found.values())

    def learn(self, lines: list[bytes]) -> None:
        """Learn from the next records, at least one."""
        table = self._table(lines)
        for name in [name for name in self._found if name not in table.column_names]:
            self._found[name] = self._found[name].with_more(absent_column(name, self.records, table.num_rows))
        for name, values in zip(table.column_names, table.columns, strict=True):
            more = self._seen(name, values, lines)
            known = self._found.get(name) or absent_column(name, 0, self.records)
            kind = wider_type(known, more)
            if kind is None:
                # Names the first record whose value is not of the type before.
                Parser(self._uri, {name: known.type}).table(lines, self.records)
                raise _error(
                    self._uri, f"column {name!r} is {known.type}, and {more.type} from record {self.records} on"
                )
            self._found[name] = replace(known.with_more(more), type=kind)
        self.records += len(lines)

    def _table(self, lines: list[bytes]) -> pa.Table:
        """The columns to read; texts are never timestamps."""
        wanted = self._options.columns
        types = {name: kind for name, kind in self._types.items() if not wanted or name in wanted}
        infer = not wanted or any(name not in types for name in wanted)
        table = Parser(self._uri, types, infer=infer).table(lines, self.records)
        times = [field.name for field in table.schema if pa.types.is_temporal(field.type)]
        if times:
            self._types.update(dict.fromkeys(times, "string"))
            return self._table(lines)
        return table.select([name for name in table.column_names if not wanted or name in wanted])

    def _seen(self, name: str, values: pa.ChunkedArray, lines: list[bytes]) -> FoundColumn:
        given = self._options.column_types.get(name)
        kind = given or ("null" if _is_empty(values.type) else natural_type(values.type)[0])
        if not kind:
            raise _error(
                self._uri,
                f"column {name!r} has nested values, which can't be read",
                hint="Leave it out with --columns, or write its values as columns of their own.",
            )
        if kind == "null":
            return absent_column(name, self.records, values.null_count)
        column = found(name, kind, "", values, self.records)
        if given or kind != "float64" or (pc.max(pc.abs(values)).as_py() or 0) < EXACT_MAX:
            return column
        return self._exact(column, values, lines)

    def _exact(self, column: FoundColumn, values: pa.ChunkedArray, lines: list[bytes]) -> FoundColumn:
        """What a column is that pyarrow read as floats because an integer needs more than 63 bits."""
        records = (json.loads(line, parse_int=str, parse_float=str, parse_constant=str) for line in lines)
        texts = [record.get(column.name) or "" for record in records]
        column = exact_integers(column, pa.chunked_array([texts]), values.is_valid(), self.records)
        if column.type == "string":
            raise _error(
                self._uri,
                f"column {column.name!r} has integers that need more than 64 bits",
                hint=f"Write them as strings, or read them rounded: --column_types {column.name}=float64",
            )
        return column


class _Scan(TextScan):
    def __init__(self, store: ObjectStore, info: ObjectInfo, options: ReaderOptions) -> None:
        super().__init__(store, info)
        self._learner = TypeLearner(info.uri, options)

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        return self._learner.columns

    def _cut(self, data: bytes, *, final: bool) -> tuple[list[bytes], Positions, int]:
        return cut(data, final=final)

    def _learn(self, data: bytes, lines: list[bytes], starts: Positions) -> tuple[list[bytes], Positions]:
        self._learner.learn(lines)
        return lines, starts

    def _refuse(self, chunk: bytes) -> None:
        if chunk.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"["):
            raise _error(
                self._info.uri,
                "it is a JSON list, not one object in each line",
                hint="Convert it: jq -c '.[]' OLD.json > NEW.jsonl",
            )

    def _error(self, reason: str) -> UserError:
        return _error(self._info.uri, reason)


def _error(uri: str, reason: str, hint: str = "Correct the file: each line is one JSON object.") -> UserError:
    return UserError(f"{display(uri)}: {reason}", hint=hint)


def _is_empty(kind: pa.DataType) -> bool:
    """Whether a column has no value at all, or only empty lists."""
    return bool(pa.types.is_null(kind) or (pa.types.is_list(kind) and pa.types.is_null(kind.value_type)))


class _JsonLines(PositionFormat):
    """Files of JSON lines, and records of readers of the model file that have columns."""

    name = "json"
    title = "JSON lines"
    extensions = ("jsonl", "ndjson", "json")
    feeds_bytes = False
    may_lack_columns = True
    is_divisible = True

    def begins(self, start: bytes) -> bool:
        return re.match(rb"\s*\{\s*[\"}]", start) is not None

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        return _Scan(store, data.info, options)

    def with_more(self, column: FoundColumn, later: FoundColumn, options: ReaderOptions) -> FoundColumn:
        kind = wider_type(column, later)
        if kind is None:
            raise UserError(f"column {column.name!r} is {column.type} and {later.type}")
        return replace(column.with_more(later), type=kind)

    def tolerant_type(self, kind: str) -> str:
        return "" if kind in ("string", "bool") else kind.replace(element_type(kind), "float64", 1)

    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        return cut(data, final=True)[0]

    def columns(self, uri: str, schema: DataSchema, records: list[bytes], first: int) -> Columns:
        types = {column.name: column.type for column in schema.columns}
        return Parser(uri, types).arrays(records, first, schema.columns)


FORMAT = _JsonLines()
