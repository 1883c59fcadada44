"""Decides about every column of a result: what the statement says of it, else what its type and values say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.sql.columns.building import Inputs, features_of, places
from elasticdl.sql.columns.derivation import Decision, derive
from elasticdl.sql.columns.described import fit
from elasticdl.sql.columns.features import PACKED, Feature, Node
from elasticdl.sql.columns.fitting import Fitter
from elasticdl.sql.columns.profile import Profile

if TYPE_CHECKING:
    from elasticdl.sql.request import Request

_OUT = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReport:
    """One column: what becomes of it (``left out`` or what the model gets of it), and why."""

    name: str
    use: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedColumns:
    """The features of a model, and the report about every column."""

    inputs: Inputs
    features: list[Feature]
    report: list[ColumnReport]


def plan_columns(request: Request, profiles: dict[str, Profile], fitter: Fitter) -> PlannedColumns:
    """Make the features of a statement.

    Raises:
        UserError: no column is left to learn from.
    """
    inputs, report = Inputs(), list[ColumnReport]()
    inputs.reserve("prediction")  # The output of the model.
    inputs.reserve(PACKED)
    named = {column for each in request.described for column in each.spec.all_columns()}
    decisions = []
    for name, profile in profiles.items():
        if name == request.label or name in named:
            continue
        if name in request.split_by:
            decisions.append(Decision(name=name, use="out", reason="it decides which rows are for validation"))
        elif request.has_rest:
            decisions.append(derive(profile))
        else:
            decisions.append(Decision(name=name, use="out", reason="no COLUMN clause names it"))
    features = features_of(decisions, profiles, inputs, fitter)
    used = iter(features)
    for decision in decisions:
        use = _OUT if decision.use == "out" else shown(next(used).node)
        report.append(ColumnReport(name=decision.name, use=use, reason=decision.reason))
    for each in request.described:
        node = fit(each.spec, profiles, inputs, fitter)
        features.append(Feature(node=node, target=each.target))
        part = f" for {each.target}" if each.target else ""
        report.append(ColumnReport(name=", ".join(each.spec.all_columns()), use=shown(node), reason=f"COLUMN{part}"))
    if not features:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in report[:10])
        raise UserError(
            f"no column is left to learn from ({reasons or 'the SELECT has none but the label'})",
            hint="Select other columns, or name some with COLUMN.",
        )
    order = {name: place for place, name in enumerate(profiles)}
    report.sort(key=lambda one: order.get(one.name.partition(",")[0], len(order)))
    return PlannedColumns(inputs=inputs, features=features, report=report)


def shown(node: Node) -> str:
    """A feature in a few words."""
    match node.operation:
        case "number":
            return "number"
        case "day":
            return "date"
        case "vector":
            return f"vector of {len(node.values['scale'])}"
        case "weighted_indicator":
            return f"weights of {places(node.of[0]):,}"
        case "weighted_embedding":
            return f"weighted embedding of {places(node.of[0]):,}, dimension {node.values['dimension']}"
        case "indicator":
            return f"one-hot of {places(node.of[0])}"
        case "embedding":
            return f"embedding of {places(node.of[0]):,}, dimension {node.values['dimension']}"
        case _:
            return f"{node.operation} of {places(node):,}"
