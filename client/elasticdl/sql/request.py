"""A TRAIN statement, checked against the columns of its SELECT: every fault of it at once, before any row is read."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.words import did_you_mean, plain_number
from elasticdl.sql.attributes import MODEL
from elasticdl.sql.columns.functions import Described, read_clauses
from elasticdl.sql.network.catalogue import DEFAULT, NETWORKS, Argument, arguments_of
from elasticdl.sql.network.sizing import Size
from elasticdl.sql.snapshot import Split
from elasticdl.sql.statements import Attribute, Fault, Position, StatementError, Train, Value

if TYPE_CHECKING:
    import pyarrow as pa

_OWN_FILE = re.compile(r"(?P<file>.+\.py):(?P<symbol>[A-Za-z_]\w*)")
_VALIDATION_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a statement asks for.

    Attributes:
        label: the name of its column, as the result has it.
        network: of the catalogue, or ``path/file.py:name``.
        described: features of the COLUMN clauses.
        split_by: columns that decide between training and validation, and are no features.
    """

    label: str
    network: str
    described: tuple[Described, ...]
    has_rest: bool
    split_by: tuple[str, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, statement: Train, schema: pa.Schema) -> Request:
        """Check a statement.

        Raises:
            StatementError: with all faults.
        """
        faults: list[Fault] = []
        label = _label(statement, schema, faults)
        network = _network(statement, faults)
        split_by = _split_by(statement, schema, label, faults)
        _check_validation(statement, faults)
        described, has_rest = read_clauses(statement.columns, schema, {label, *split_by}, faults)
        attributes = {each.name.text: each.value for each in statement.attributes}
        for each in statement.attributes:
            if each.name.text.startswith(MODEL):
                _check_argument(each, network, faults)
        if faults:
            raise StatementError(faults)
        return cls(
            label=label,
            network=network,
            described=tuple(described),
            has_rest=has_rest,
            split_by=split_by,
            attributes=attributes,
        )

    @property
    def validation_select(self) -> str:
        """The SELECT of the validation rows; empty: they are split off."""
        return str(self.attributes.get("validation.select") or "")

    def split(self, *, stratified: bool, default: bool) -> Split:
        """How rows are divided.

        Args:
            stratified: keep the shares of the classes.
            default: divide them also where the statement says nothing.
        """
        share = 0.0 if self.validation_select or not default else _VALIDATION_SHARE
        given = self.attributes.get("validation.split")
        if given is not None and not self.validation_select:
            share = float(str(given))
        seed = self.attributes.get("seed")
        return Split(
            share=share,
            by=self.split_by,
            stratify=self.label if stratified else "",
            seed=int(str(seed)) if seed is not None else 0,
        )

    def arguments(self, size_for: Callable[..., Size], rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of the network and its training, and options of the job, with sizes by the data."""
        given = {name: int(str(self.attributes.get(name) or 0)) for name in ("minibatch_size", "num_epochs")}
        size = size_for(rows, batch=given["minibatch_size"], epochs=given["num_epochs"])
        found: dict[str, Any] = {name: one.default for name, one in arguments_of(self.network).items()}
        found |= {
            name.removeprefix(MODEL): list(value) if isinstance(value, tuple) else value
            for name, value in self.attributes.items()
            if name.startswith(MODEL)
        }
        if "hidden_units" in found and found["hidden_units"] is None:
            found["hidden_units"] = list(size.hidden_units)
        if found["learning_rate"] is None:
            found["learning_rate"] = size.learning_rate
        found["steps"] = -(-rows // size.batch) * size.epochs
        return found, {"num_epochs": size.epochs, "minibatch_size": size.batch}

    def copy_network(self, file: Path, folder: Path) -> None:
        """Copy the file of a network, and the modules beside it that it imports."""
        from elasticdl.shared.job.model_digest import file_digests

        file = file.resolve()
        for name in file_digests(file):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.parent / name, target)


def find_column(name: str, schema: pa.Schema) -> str:
    """The column that a name means: the same, or the same in another case; empty: none."""
    if name in schema.names:
        return name
    return next((each for each in schema.names if each.lower() == name.lower()), "")


def _label(statement: Train, schema: pa.Schema, faults: list[Fault]) -> str:
    if len(statement.label) != 1:
        position = statement.label[1].position if statement.label else statement.into.position
        if statement.label:
            faults.append(Fault("a model has one LABEL.", position, hint="Train a model for each label."))
        else:
            hint = "Name the column to predict: LABEL income."
            faults.append(Fault("the statement has no LABEL.", position, hint=hint))
        return ""
    (name,) = statement.label
    found = find_column(name.text, schema)
    if not found:
        faults.append(_unknown(name.text, name.position, schema.names, "the SELECT has no column"))
    return found


def _network(statement: Train, faults: list[Fault]) -> str:
    if statement.model is None:
        return DEFAULT
    name = statement.model.text
    known = {each.lower(): each for each in NETWORKS}
    if match := _OWN_FILE.fullmatch(name):
        if not Path(match["file"]).is_file():
            faults.append(Fault(f"there is no file {match['file']}.", statement.model.position, len(name)))
        return name
    found = known.get(name.rpartition(".")[2].lower(), "")
    if not found:
        faults.append(
            Fault(
                f"there is no network {name!r}.",
                statement.model.position,
                len(name),
                did_you_mean(name, NETWORKS, f"Name one of {', '.join(NETWORKS)}, or your own: file.py:MyNet."),
            )
        )
    return found


def _check_validation(statement: Train, faults: list[Fault]) -> None:
    """The rows for validation have one origin."""
    given = {each.name.text: each.name for each in statement.attributes}
    if "validation.select" in given:
        for name in (given[each] for each in ("validation.split", "validation.split_by") if each in given):
            message = f"{name} has no meaning beside validation.select, which has all rows for validation."
            faults.append(Fault(message, name.position, len(name.text), "Leave one of them out."))


def _split_by(statement: Train, schema: pa.Schema, label: str, faults: list[Fault]) -> tuple[str, ...]:
    found = []
    for each in statement.attributes:
        if each.name.text != "validation.split_by":
            continue
        names = each.value if isinstance(each.value, tuple) else str(each.value).split(",")
        for name in (str(name).strip() for name in names):
            column = find_column(name, schema)
            if not column:
                faults.append(_unknown(name, each.position, schema.names, "the SELECT has no column"))
            elif column == label:
                message = "validation.split_by is the label, so validation would have values that training has not."
                faults.append(Fault(message, each.position, len(name) + 2, "Name another column."))
            found.append(column)
    return tuple(found)


def _check_argument(attribute: Attribute, network: str, faults: list[Fault]) -> None:
    name = attribute.name.text.removeprefix(MODEL)
    networks = (network,) if network else tuple(NETWORKS)  # An unknown one may be any of them.
    known = {name: argument for each in networks for name, argument in arguments_of(each).items()}
    if ":" in network and name not in known:
        return  # ``networks.own`` checks the signature in the file.
    if name not in known:
        message = f"{network or 'the network'} has no"
        arguments = [MODEL + each for each in known]
        faults.append(_unknown(attribute.name.text, attribute.name.position, arguments, message))
    elif problem := _wrong(attribute.value, known[name]):
        value = "[" if isinstance(attribute.value, tuple) else str(attribute.value)
        hint = did_you_mean(value, known[name].choices)
        faults.append(Fault(f"{attribute.name.text} {problem}.", attribute.position, len(value), hint))


def _wrong(value: Value, argument: Argument) -> str:
    """What is wrong with the value of an argument; empty: nothing."""
    if argument.choices:
        fits = isinstance(value, str) and value.lower() in argument.choices
        return "" if fits else f"is one of {', '.join(argument.choices)}, not {value}"
    values: Sequence[Value] = value if isinstance(value, tuple) and argument.kind == "ints" else (value,)
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    whole = argument.kind == "float" or all(float(each).is_integer() for each in numbers)
    if len(numbers) != len(values) or not whole:
        kinds = {"ints": "a list of whole numbers", "int": "a whole number", "float": "a number"}
        return f"is {kinds[argument.kind]}"
    if not all(argument.low <= each <= argument.high for each in numbers):
        low = plain_number(argument.low)
        is_open = math.isinf(argument.high)
        return f"is at least {low}" if is_open else f"is between {low} and {plain_number(argument.high)}"
    return ""


def _unknown(name: str, position: Position, known: Sequence[str], message: str) -> Fault:
    return Fault(f"{message} {name!r}.", position, len(name), did_you_mean(name, known))
