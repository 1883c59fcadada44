"""What a model takes and how, as it is saved with the model: ``features.json``.

Every category has places, numbered from 0, which are rows of an embedding or positions of a 0/1 vector:

============  ==========================  ============================  =====================
operation     place 0                     place 1                       from place 2 on
============  ==========================  ============================  =====================
vocabulary    NULL, and the empty text    values outside of it          values, frequent first
identity      NULL                        numbers outside of [0, n)     0, 1, 2 ...
hash, cross   NULL (hash)                 bucket 0                      bucket 1 ...
bucket        NULL                        below the first boundary      the next interval ...
============  ==========================  ============================  =====================

A number that is NULL becomes the mean of the training rows (0 after scaling), and if training rows had NULLs, another
number says so: 1 for NULL, 0 else.

Of a wide table, numbers that are nothing but scaled are packed: the model and the data have them as one vector, because
a minibatch of some thousand inputs, each with a tensor of its own, takes longer to hand over than to learn from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from elasticdl.shared.errors import check_format

FORMAT = 2
"""Of 2: ``packed``."""
PACKED = "packed_numbers"
"""Name of the input with the packed numbers."""
Kind = Literal["number", "day", "text", "id", "vector", "texts", "ids"]
"""What an input of the model takes.

``number``: a float, NaN for NULL. ``day``: days since 1970 with their fraction, a float64. ``text``: a string, empty
for NULL. ``id``: an int64, -1 for NULL, -2 for one that is out of range. ``vector``: floats. ``texts``: strings.
``ids``: int64, each 1 more than the id, -1 for one that is out of range; 0 pads.
"""
Task = Literal["classification", "regression"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of the model, and the column of the result that it takes.

    Attributes:
        name: of the input; also that of the column in the prepared data.
        size: numbers of a vector, or the number of ids.
        delimiter: between the values of a list that is given as a text; empty: the column is no such text.
        pair_delimiter: between an index and its number in such a list; empty: there are no such pairs.
        source: what the column was in training, such as ``integer``, for messages and checks.
    """

    name: str
    column: str
    kind: Kind
    size: int = 0
    delimiter: str = ""
    pair_delimiter: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step from inputs to numbers: what it does, of which inputs or other steps.

    ``operation``: number, day, vector (give numbers); vocabulary, hash, identity, bucket, cross, concat (give places of
    a category); embedding, indicator (numbers of a category); weighted_embedding, weighted_indicator (numbers of a
    vector of weights, whose places are the ids of a category: it has no input of its own).
    """

    operation: str
    input: str = ""
    of: tuple[Node, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def inputs(self) -> Iterator[str]:
        """Names of the inputs below."""
        if self.input:
            yield self.input
        for node in self.of:
            yield from node.inputs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature: a tree of steps, and the part of the network that gets it.

    Attributes:
        target: of ``COLUMN ... FOR target``; empty: all parts.
    """

    node: Node
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What the model predicts.

    Attributes:
        name: of the column in the prepared data: the number of the class, or the value.
        column: of the result.
        classes: texts of the column's values in the order of the classes; empty: a number is predicted.
        class_type: of these values: ``string``, ``int64``, ``bool`` or ``double``.
        shift, scale: mean and standard deviation of a number in the training rows.
        counts: rows of each class in the training rows.
    """

    name: str
    column: str
    classes: tuple[str, ...] = ()
    class_type: str = "string"
    shift: float = 0.0
    scale: float = 1.0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Everything that is needed to make the model again, and to prepare rows for it.

    Attributes:
        network: name in the catalogue, or ``file.py:name``.
        arguments: of the network and of its training, see the catalogue.
        rows: number of training rows.
        packed: names of the inputs whose numbers are the vector ``PACKED``, in this order, as float32.
    """

    task: Task
    label: Label
    inputs: tuple[Input, ...]
    features: tuple[Feature, ...]
    network: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    packed: tuple[str, ...] = ()

    def as_json(self) -> str:
        """As text; the same features give the same text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1, sort_keys=True)

    @classmethod
    def of_json(cls, text: str) -> Features:
        """The inverse of ``as_json``.

        Raises:
            FormatError: it was written by a newer version.
        """
        facts = json.loads(text)
        check_format("the features of the model", facts.pop("format", None), FORMAT)
        label = facts.pop("label")
        return cls(
            label=Label(**{**label, "classes": tuple(label["classes"]), "counts": tuple(label["counts"])}),
            inputs=tuple(Input(**each) for each in facts.pop("inputs")),
            features=tuple(Feature(node=_node(each["node"]), target=each["target"]) for each in facts.pop("features")),
            packed=tuple(facts.pop("packed", ())),
            **facts,
        )


def _node(facts: Mapping[str, Any]) -> Node:
    return Node(
        operation=facts["operation"],
        input=facts["input"],
        of=tuple(map(_node, facts["of"])),
        values=dict(facts["values"]),
    )
