"""The functions of COLUMN clauses: a table of their arguments, and the check of a clause against a result's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elasticdl.shared.words import count, did_you_mean, listed
from elasticdl.sql.columns.derivation import BUCKETS_MAX, VECTOR_MAX, VOCABULARY_MAX
from elasticdl.sql.statements import (
    START,
    Call,
    ColumnClause,
    Expression,
    Fault,
    Literal,
    Name,
    Pattern,
    Position,
    Star,
)

if TYPE_CHECKING:
    import pyarrow as pa

_DELIMITERS = {"COMMA": ",", "SPACE": " ", "TAB": "\t", "SEMICOLON": ";", "COLON": ":"}
_BUCKETS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A COLUMN function.

    Attributes:
        of: what its expressions are: ``column``, ``category`` (a column becomes one) or ``categories``.
        arguments: the constants after them, in order: name -> default; ... : it has none.
        meaning: one sentence for the documentation.
    """

    of: str
    arguments: Mapping[str, Any]
    meaning: str


_REQUIRED = ...
WEIGHTED = "WEIGHTED_CATEGORY"
FUNCTIONS: Mapping[str, Function] = {
    "NUMERIC": Function(of="column", arguments={"shape": 1}, meaning="The number, scaled by mean and deviation."),
    "STANDARDIZE": Function(of="column", arguments={}, meaning="(x - mean) / standard deviation."),
    "NORMALIZE": Function(of="column", arguments={}, meaning="(x - minimum) / (maximum - minimum)."),
    "DENSE": Function(
        of="column",
        arguments={"shape": _REQUIRED, "delim": ",", "dtype": "float"},
        meaning="A list of numbers, or a text with them, as a vector.",
    ),
    "SPARSE": Function(
        of="column",
        arguments={"shape": _REQUIRED, "delim": ",", "dtype": "int", "delim_kv": "", "dtype_w": "float"},
        meaning="A text of ids, or of index:number pairs, as a vector of zeros with those places set.",
    ),
    "BUCKET": Function(
        of="column", arguments={"boundaries": _REQUIRED}, meaning="The interval between boundaries that a number is in."
    ),
    "BUCKETIZE": Function(
        of="column", arguments={"num_buckets": _BUCKETS}, meaning="Intervals with about as many rows each."
    ),
    "CATEGORY_ID": Function(of="column", arguments={"size": _REQUIRED}, meaning="An integer from 0 to size - 1."),
    "SEQ_CATEGORY_ID": Function(
        of="column",
        arguments={"size": _REQUIRED, "delim": ","},
        meaning="A list of integers from 0 to size - 1, or a text with them.",
    ),
    "CATEGORY_HASH": Function(of="column", arguments={"size": _REQUIRED}, meaning="A value, hashed to size buckets."),
    "HASH": Function(
        of="column", arguments={"size": None}, meaning="A value, hashed to 3 buckets for each different value."
    ),
    "VOCABULARIZE": Function(
        of="column", arguments={"max_size": VOCABULARY_MAX}, meaning="The different values of the training rows."
    ),
    "WEIGHTED_CATEGORY": Function(
        of="category",
        arguments={},
        meaning="Ids with weights, from a text of id:weight pairs: WEIGHTED_CATEGORY(CATEGORY_ID(SPARSE(...), size)).",
    ),
    "CROSS": Function(
        of="categories", arguments={"size": _REQUIRED}, meaning="Pairs of values, hashed to size buckets."
    ),
    "CONCAT": Function(of="categories", arguments={}, meaning="Several categories that share one embedding."),
    "EMBEDDING": Function(
        of="category",
        arguments={"dimension": None, "combiner": "mean"},
        meaning="A vector that is learned for each value.",
    ),
    "INDICATOR": Function(of="category", arguments={}, meaning="0 or 1 for each value."),
}
"""Name -> what it takes."""
_ALIASES = {
    "dim": "dimension",
    "bucket_size": "size",
    "hash_bucket_size": "size",
    "bucket_num": "size",
    "num_classes": "size",
    "delimiter": "delim",
}
"""Other names of arguments -> the names above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A checked expression: of which columns or other expressions it is made. ``function`` is empty for a column."""

    function: str = ""
    column: str = ""
    parts: tuple[Spec, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    position: Position = START

    def all_columns(self) -> Iterator[str]:
        """Columns below, in order."""
        if self.column:
            yield self.column
        for part in self.parts:
            yield from part.all_columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A feature that the statement describes."""

    spec: Spec
    target: str


def read_clauses(
    clauses: Sequence[ColumnClause], schema: pa.Schema, taken: set[str], faults: list[Fault]
) -> tuple[list[Described], bool]:
    """Check COLUMN clauses.

    Args:
        taken: columns that can't be features: the label, and those that divide the rows.
        faults: gets what is wrong.

    Returns:
        The features, and whether columns that no clause names are features, too: without clauses, with ``*``, and where
        the only clause has no FOR.
    """
    reader = _Reader(schema.names, taken, faults)
    described: list[Described] = []
    has_rest = not clauses or all(clause.target is None for clause in clauses)
    for clause in clauses:
        for expression in clause.columns:
            if isinstance(expression, Star):
                has_rest = True
                continue
            target = clause.target.text if clause.target else ""
            described += [Described(spec=spec, target=target) for spec in reader.read(expression)]
    return described, has_rest


class _Reader:
    """Checks expressions against the columns of a result."""

    def __init__(self, names: Sequence[str], taken: set[str], faults: list[Fault]) -> None:
        self._names = names
        self._taken = taken
        self._faults = faults

    def read(self, expression: Expression) -> list[Spec]:
        """The features of an expression: several if it has a pattern; none if it is wrong."""
        match expression:
            case Name(text, position):
                return self._column(text, position)
            case Pattern(text, position):
                return self._pattern(text, position)
            case Call():
                return self._call(expression)
            case Literal(value, position):
                self._fault(f"{value!r} is not a column.", position, hint="Name a column or call a function.")
            case Star(position):
                self._fault("* is not an argument. Write it by itself: COLUMN *, or COLUMN a, *.", position)
        return []

    def _fault(self, message: str, position: Position, length: int = 1, hint: str = "") -> None:
        self._faults.append(Fault(message, position, length, hint))

    def _column(self, text: str, position: Position) -> list[Spec]:
        known = {name.lower(): name for name in self._names}
        name = text if text in self._names else known.get(text.lower(), "")
        if not name:
            hint = did_you_mean(text, self._names, "The SELECT names the columns that can be used.")
            self._fault(f"the SELECT has no column {text!r}.", position, len(text), hint)
            return []
        if name in self._taken:
            self._fault(f"{name!r} is the label or divides the rows, so it can't be a feature.", position, len(text))
            return []
        return [Spec(column=name, position=position)]

    def _pattern(self, text: str, position: Position) -> list[Spec]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if any(text.lower() == name.lower() for name in self._names):
            return self._column(text, position)
        try:  # RE2 takes linear time for every pattern; Python's re does not.
            matches = pc.match_substring_regex(pa.array(self._names, pa.string()), f"^(?:{text})$", ignore_case=True)
        except pa.ArrowInvalid as error:
            self._fault(f"{text!r} is not a regular expression: {error}.", position, len(text) + 2)
            return []
        pairs = zip(self._names, matches.to_pylist(), strict=True)
        found = [name for name, matched in pairs if matched and name not in self._taken]
        if not found:
            hint = did_you_mean(text, self._names)
            self._fault(f"no column of the SELECT matches {text!r}.", position, len(text) + 2, hint)
        return [Spec(column=name, position=position) for name in found]

    def _call(self, call: Call) -> list[Spec]:
        name = call.function.text.upper()
        if name not in FUNCTIONS:
            hint = did_you_mean(name, FUNCTIONS, f"The functions are {', '.join(FUNCTIONS)}.")
            self._fault(f"there is no COLUMN function {name}.", call.position, len(name), hint)
            return []
        function = FUNCTIONS[name]
        several = function.of == "categories"
        number = next(
            (place for place, one in enumerate(call.arguments) if isinstance(one, Literal)), len(call.arguments)
        )
        expressions = call.arguments[:number] if several else call.arguments[:1]
        constants = call.arguments[len(expressions) :]
        if not expressions or (several and name == "CROSS" and len(expressions) < 2):
            hint = f"{name}({'a, b' if several else 'a'}{''.join(f', {each}' for each in function.arguments)})"
            self._fault(f"{name} needs {'two columns' if several else 'a column'}.", call.position, len(name), hint)
            return []
        before = len(self._faults)
        parts = [self.read(one) for one in expressions]
        arguments = self._arguments(call, name, constants)
        if len(self._faults) > before:
            return []
        flat = [spec for part in parts for spec in part]
        self._check_parts(name, function, flat, call)
        groups = [tuple(flat)] if several else [(spec,) for spec in flat]
        return [Spec(function=name, parts=group, arguments=arguments, position=call.position) for group in groups]

    def _check_parts(self, name: str, function: Function, parts: Sequence[Spec], call: Call) -> None:
        """Refuse functions of functions that make no sense."""
        inner = ("SPARSE", "DENSE")
        for part in parts:
            if name == WEIGHTED:
                if not _has_weights(part):
                    message = f"{name} takes a category of ids with weights."
                    hint = f"{name}(CATEGORY_ID(SPARSE(column, 100, delim_kv=':'), 100))"
                    self._fault(message, call.position, len(name), hint)
                continue
            if part.function == WEIGHTED and name in ("EMBEDDING", "INDICATOR"):
                continue
            wrong = bool(part.function) and (
                (function.of == "column" and part.function not in inner)
                or (function.of in ("category", "categories") and part.function not in _CATEGORIES)
            )
            if wrong:
                kind = "a column" if function.of == "column" else "a column or a category"
                self._fault(f"{name} takes {kind}, which {part.function} does not give.", call.position, len(name))

    def _arguments(self, call: Call, name: str, constants: Sequence[Expression]) -> dict[str, Any]:
        """The values of a function's arguments, checked."""
        known = FUNCTIONS[name].arguments
        found: dict[str, Any] = {}
        if len(constants) > len(known):
            message = f"{name} takes {count(len(known), 'argument')} after its columns."
            self._fault(message, constants[len(known)].position)
            return {}
        given = [*zip(known, constants, strict=False)]
        for keyword, value in call.keywords:
            alias = _ALIASES.get(keyword.text.lower(), keyword.text.lower())
            if alias not in known:
                hint = did_you_mean(alias, known, f"It takes {', '.join(known) or 'none'}.")
                self._fault(f"{name} has no argument {keyword.text!r}.", keyword.position, len(keyword.text), hint)
                continue
            given.append((alias, value))
        for argument, expression in given:
            if argument in found:
                self._fault(f"{argument} of {name} is given twice.", expression.position)
            value, problem = _checked(argument, _constant(expression))
            if problem:
                self._fault(f"{argument} of {name} is {problem}.", expression.position)
            found[argument] = value
        for argument, default in known.items():
            if argument not in found and default is _REQUIRED:
                hint = f"{name}({', '.join(['column', *known])})"
                self._fault(f"{name} needs its argument {argument!r}.", call.position, len(name), hint)
            found.setdefault(argument, default)
        return found


_CATEGORIES = frozenset(
    listed("BUCKET,BUCKETIZE,CATEGORY_ID,SEQ_CATEGORY_ID,CATEGORY_HASH,HASH,VOCABULARIZE,CROSS,CONCAT")
)
"""Functions that give a category."""


def _has_weights(spec: Spec) -> bool:
    """Whether a category is one of ids with weights."""
    if spec.function not in ("CATEGORY_ID", "CATEGORY_HASH"):
        return False
    return spec.parts[0].function == "SPARSE" and bool(spec.parts[0].arguments["delim_kv"])


def _constant(expression: Expression) -> Any:
    """The value of an argument; a name is its text, such as COMMA."""
    return expression.text if isinstance(expression, Name | Pattern) else getattr(expression, "value", None)


def _checked(argument: str, value: Any) -> tuple[Any, str]:
    """The value of an argument in its type, and what it should be if it is not; empty: it is."""
    limits = {
        "size": BUCKETS_MAX,
        "shape": VECTOR_MAX,
        "num_buckets": 1_000,
        "dimension": 1_024,
        "max_size": BUCKETS_MAX,
    }
    if argument in limits:
        if isinstance(value, tuple) and len(value) == 1:
            (value,) = value
        is_whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
        fits = is_whole and 1 <= value <= limits[argument]
        return (int(value), "") if fits else (value, f"a whole number from 1 to {limits[argument]:,}")
    if argument == "boundaries":
        values = value if isinstance(value, tuple) else (value,)
        numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
        ordered = len(numbers) == len(values) > 0 and numbers == sorted(set(numbers))
        return (numbers, "") if ordered else (value, "a list of increasing numbers, such as [25, 35, 50]")
    if argument in ("delim", "delim_kv"):
        text = _DELIMITERS.get(str(value).upper(), str(value))
        return (text, "") if len(text) == 1 else (value, "one character, or COMMA, SPACE, TAB, SEMICOLON, COLON")
    if argument == "combiner":
        return (value, "") if value in ("mean", "sum", "sqrtn") else (value, "mean, sum or sqrtn")
    return value, ""
