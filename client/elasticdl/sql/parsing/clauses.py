"""The clauses after the SELECT: in any order, each at most once, except COLUMN, which each target has."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.shared.words import similar
from elasticdl.sql.parsing.cursor import ClauseError, Cursor
from elasticdl.sql.parsing.tail import CLAUSES, VERBS
from elasticdl.sql.parsing.tokens import Kind, Token
from elasticdl.sql.parsing.values import attribute, expression
from elasticdl.sql.statements import (
    Attribute,
    ColumnClause,
    Evaluate,
    Explain,
    JobStatement,
    ModelName,
    Name,
    Predict,
    Query,
    Train,
)

_STOPS = frozenset((*CLAUSES, "FOR"))
_LABEL_STOPS = _STOPS - {"LABEL"}
ATTRIBUTES_MAX, EXPRESSIONS_MAX = 1_000, 10_000
_INSTEAD = {
    "RUN": "TO RUN is not supported: run the program before the statement, and read its result with --database.",
    "MAXIMIZE": "TO MAXIMIZE is not supported: ElasticDL trains models. Use a solver such as scipy.optimize.",
    "MINIMIZE": "TO MINIMIZE is not supported: ElasticDL trains models. Use a solver such as scipy.optimize.",
}
_OTHER_LIBRARIES = ("xgboost", "lightgbm", "catboost")


@dataclass(slots=True)
class _Clauses:
    """What the clauses say; ``places`` are the first tokens of those that were given."""

    attributes: list[Attribute] = field(default_factory=list)
    columns: list[ColumnClause] = field(default_factory=list)
    label: tuple[Name, ...] = ()
    using: ModelName | None = None
    into: Name | None = None
    places: dict[str, Token] = field(default_factory=dict)
    misspelled: set[str] = field(default_factory=set)


def read_clauses(cursor: Cursor, query: Query) -> JobStatement | None:
    """The statement whose clauses begin at the cursor; None: something is missing, and recorded.

    Args:
        cursor: at ``TO``, or at the first clause of the short form.
    """
    start = cursor.token
    verb, subject = "TRAIN", None
    if cursor.skip_word("TO"):
        verb, subject = _verb(cursor)
    if verb in _INSTEAD:
        return None
    clauses = _Clauses()
    while cursor.token.kind is not Kind.END:
        try:
            _read_clause(cursor, clauses, verb)
        except ClauseError:
            _skip(cursor)
    return _statement(cursor, start, query, verb, subject, clauses)


def _verb(cursor: Cursor) -> tuple[str, ModelName | None]:
    """What follows TO: the verb, and the model or table after it."""
    token = cursor.take()
    verb = token.word
    if verb in _INSTEAD:
        cursor.fault(_INSTEAD[verb], token)
        return verb, None
    if verb not in VERBS:
        meant = similar(verb, VERBS, 0.7)
        cursor.fault(f"TO {token.text} is unknown.", token, f"Did you mean TO {meant}?")
        verb = meant
    what = {"TRAIN": "the model to train", "PREDICT": "the table for the predictions"}.get(verb, "the model")
    try:
        return verb, cursor.model_name(f"{what} after TO {verb}", _STOPS)
    except ClauseError:
        _skip(cursor)
        return verb, None


def _skip(cursor: Cursor) -> None:
    """Continue at the next clause, after an error."""
    while cursor.token.kind is not Kind.END and cursor.token.word not in CLAUSES:
        cursor.take()


def _read_clause(cursor: Cursor, clauses: _Clauses, verb: str) -> None:
    token = cursor.token
    word = token.word
    if word not in CLAUSES:
        meant = similar(word, CLAUSES)
        hint = f"Did you mean {meant}?" if meant else f"Clauses are {', '.join(CLAUSES)}."
        clauses.misspelled.add(meant)
        cursor.take()
        raise cursor.fail(f"no clause begins with {cursor.script.text[token.start : token.end][:40]!r}.", token, hint)
    if word in clauses.places and word != "COLUMN":
        cursor.fault(f"{word} is given twice.", token)
    clauses.places.setdefault(word, token)
    cursor.take()
    match word:
        case "WITH":
            _read_attributes(cursor, clauses)
        case "COLUMN":
            clauses.columns.append(_columns(cursor))
        case "LABEL":
            clauses.label = _labels(cursor)
        case "USING":
            what = "the explainer" if verb == "EXPLAIN" else "the model"
            clauses.using = cursor.model_name(f"{what} after USING", _STOPS)
        case _:
            what = "the name for the model" if verb == "TRAIN" else "the table"
            clauses.into = cursor.spaceless(f"{what} after INTO", _STOPS)


def _read_attributes(cursor: Cursor, clauses: _Clauses) -> None:
    known = {each.name.text for each in clauses.attributes}
    while True:
        token = cursor.token
        try:
            found = attribute(cursor, _STOPS)
            if found.name.text in known:
                cursor.fault(f"the attribute {found.name.text} is given twice.", token)
            known.add(found.name.text)
            clauses.attributes.append(found)
        except ClauseError:
            _to_comma(cursor)
        if not cursor.skip_sign(","):
            return
        if len(known) >= ATTRIBUTES_MAX:
            raise cursor.fail(f"WITH has more than {ATTRIBUTES_MAX:,} attributes.")


def _to_comma(cursor: Cursor) -> None:
    """Continue with the next attribute, after an error in one."""
    depth = 0
    while cursor.token.kind is not Kind.END and cursor.token.word not in CLAUSES:
        if cursor.token.kind is Kind.SIGN:
            if cursor.token.text == "," and depth <= 0:
                return
            depth += (cursor.token.text in "([") - (cursor.token.text in ")]")
        cursor.take()


def _columns(cursor: Cursor) -> ColumnClause:
    found = [expression(cursor, _STOPS)]
    while cursor.skip_sign(","):
        if len(found) >= EXPRESSIONS_MAX:
            raise cursor.fail(f"COLUMN has more than {EXPRESSIONS_MAX:,} columns.")
        found.append(expression(cursor, _STOPS))
    if cursor.token.word == "AS":
        raise cursor.fail("columns of a model have no names of their own.", hint="Leave AS out; FOR names the input.")
    target = cursor.spaceless("the input of the model after FOR", _STOPS) if cursor.skip_word("FOR") else None
    return ColumnClause(tuple(found), target)


def _labels(cursor: Cursor) -> tuple[Name, ...]:
    found = [_label(cursor)]
    while cursor.skip_sign(","):
        found.append(_label(cursor))
    return tuple(found)


def _label(cursor: Cursor) -> Name:
    name = cursor.column_name("the column after LABEL", _LABEL_STOPS)
    if cursor.token.is_sign("(") or cursor.token.is_sign("."):
        raise cursor.fail(
            "LABEL takes a column of the SELECT, not an expression.",
            hint="Give the expression a name in the SELECT: SELECT ..., EXPRESSION AS y ... LABEL y.",
        )
    return name


_NEEDS = {
    "TRAIN": {"LABEL": "the column to learn", "INTO": "the model to register"},
    "PREDICT": {"USING": "the model"},
}
_TAKES = {
    "TRAIN": ("WITH", "COLUMN", "LABEL", "USING", "INTO"),
    "PREDICT": ("WITH", "USING"),
    "EVALUATE": ("WITH", "LABEL", "INTO"),
    "EXPLAIN": ("WITH", "USING", "INTO"),
}


def _statement(
    cursor: Cursor, start: Token, query: Query, verb: str, subject: ModelName | None, clauses: _Clauses
) -> JobStatement | None:
    """Put the parts together; what is missing, or has no meaning here, is recorded."""
    for word, token in clauses.places.items():
        if word not in _TAKES[verb]:
            cursor.fault(f"TO {verb} takes no {word}.", token, f"It takes {', '.join(_TAKES[verb])}.")
    for word, what in _NEEDS.get(verb, {}).items():
        if word not in clauses.places and word not in clauses.misspelled:
            cursor.fault(f"{word} is missing: it names {what}.", start, f"Add {word} NAME.")
    attributes = tuple(clauses.attributes)
    if cursor.faults:
        return None
    if verb == "TRAIN":
        assert clauses.into is not None
        model = subject.name if subject else None
        _check_library(cursor, model)
        _check_targets(cursor, clauses)
        columns = tuple(clauses.columns)
        return Train(query, clauses.label, clauses.into, model, attributes, columns, clauses.using)
    assert subject is not None
    if verb == "PREDICT":
        assert clauses.using is not None
        table, _, column = subject.name.text.rpartition(".")
        at = subject.name.position
        name = Name(column, at) if table else None
        return Predict(query, Name(table or column, at), name, clauses.using, attributes)
    if verb == "EVALUATE":
        if len(clauses.label) > 1:
            cursor.fault("TO EVALUATE takes one LABEL.", clauses.places["LABEL"])
        label = clauses.label[0] if clauses.label else None
        return Evaluate(query, subject, label, clauses.into, attributes)
    explainer = clauses.using.name if clauses.using else None
    return Explain(query, subject, clauses.into, attributes, explainer)


def _check_library(cursor: Cursor, model: Name | None) -> None:
    library = model.text.partition(".")[0].lower() if model else ""
    if library in _OTHER_LIBRARIES:
        assert model is not None
        at = next(token for token in cursor.tokens if token.start == model.position.offset)
        cursor.fault(
            f"models of {library} are not supported: ElasticDL trains Keras models.",
            at,
            "Leave the model out, or name DNNClassifier, DNNRegressor or WideAndDeep.",
            length=len(model.text),
        )


def _check_targets(cursor: Cursor, clauses: _Clauses) -> None:
    targets = [clause.target.text if clause.target else "" for clause in clauses.columns]
    if len(targets) > 1 and ("" in targets or len(set(targets)) < len(targets)):
        message = "each of several COLUMN clauses needs FOR, with an input of the model that no other clause names."
        cursor.fault(message, clauses.places["COLUMN"])
