"""How each variable that ``call`` assigns takes a batch, found by running the model from several starting values.

One process applies the updates of layer state one after another. With several workers, an update was computed from an
older value than the one that it meets. So the ps must know how the new value depends on the old one. This module finds
that out by trial: a moving average, a sum, a maximum, a minimum or an assignment is served; anything else is refused
before training starts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.layers import serving
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import StateRule, StateUpdate
from elasticdl.shipping.own_steps import restoring
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.build import BuiltModel
from elasticdl.worker.model.embeddings.lookups import RecordedIds
from elasticdl.worker.model.own_step import OwnStep
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.randomness import seed_process

_RECORDS_MAX = 8
"""Records of a batch that is tried: how a variable is updated does not depend on their number."""
_FLOAT32_INTEGERS_MAX = 2.0**24
"""Every whole number up to this one is a float32."""
_FAR = 1e9
"""Beyond every extreme that a batch may have, in units of the variable's own size."""
_STEPS_MIN = 3
"""A straight line through two points proves nothing."""
_SEED = 7

Float64s = NDArray[np.float64]
Run = Callable[[Sequence[Float64s]], list[Float64s]]
"""Values of the assigned variables before a training step -> their values after it, each flat float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One variable before and after some steps that start from different values.

    Attributes:
        before: float64 (steps, elements).
        after: float64 (steps, elements).
        decimals: how exactly a momentum can be told, from the precision of the variable's type.
    """

    before: Float64s
    after: Float64s
    decimals: int

    @property
    def near(self) -> int:
        """The step with the smallest values: the most exact one."""
        return int(np.abs(self.before).sum(axis=1).argmin())

    def fits(self, expected: Float64s) -> bool:
        """Whether ``after`` is as expected, but for rounding."""
        sizes = np.abs(self.before) + np.abs(self.after)
        tolerance = 20 * 10.0**-self.decimals * (sizes + sizes[self.near])
        return bool((np.abs(self.after - expected) <= tolerance).all())


def state_rules(built: BuiltModel, example: Batch, path: Path) -> dict[int, StateRule]:
    """The rules of all variables that a training step assigns.

    Returns:
        Rules by the ``id()`` of their variables, in the order of the model's weights.

    Raises:
        UserError: a trainable variable is assigned, or the ps can't update a variable as one process would.
    """
    for variable in built.assigned:
        if variable.trainable:
            raise UserError(
                f"{path}: {'train_step()' if built.own else 'the call() of a layer'} assigns {variable.path}, which is "
                "trainable: the optimizer changes it too",
                hint="Several workers can't keep both changes. Make the weight non-trainable and assign it only, or "
                "train it only: for example with a regularizer, or with a function of the weight that call computes.",
            )
    if not built.assigned:
        return {}
    rules: list[StateRule | None] | None = None
    for count in (_RECORDS_MAX, _RECORDS_MAX // 2 + 1):
        with user_code(path, "the model"):
            run = _runner(built, *_some_records(example, count))
            found = _rules_of_batch(run, built.assigned)
            broken = [variable for rule, variable in zip(found, built.assigned, strict=True) if rule is None]
            _require_finite(run, built.assigned, broken, path, records=min(count, example.count))
        rules = found if rules is None else [_agreed(one, other) for one, other in zip(rules, found, strict=True)]
    assert rules is not None
    named = {}
    for variable, rule in zip(built.assigned, rules, strict=True):
        if rule is None:
            raise _refusal(variable, path)
        named[id(variable)] = _with_range(variable, rule)
    return named


def _refusal(variable: Any, path: Path) -> UserError:
    layer, _, name = variable.path.rpartition("/")
    return UserError(
        f"{path}: layer {layer!r} updates its state {name!r} in a way that several workers can't share: "
        "the new value is no moving average, sum, maximum, minimum or assignment",
        hint="Rewrite the update as one of these, with the same factor for all elements and batches: "
        "m * v + (1 - m) * x, v + x, maximum(v, x), minimum(v, x), or a value that does not depend on v.",
    )


def _require_finite(run: Run, assigned: Sequence[Any], broken: Sequence[Any], path: Path, *, records: int) -> None:
    """Refuse a model in which NaN or an infinite value arrives at a layer with state: its updates say nothing then."""
    if not broken:
        return
    initial = [_flat(variable.value) for variable in assigned]
    for variable, before, after in zip(assigned, initial, run(initial), strict=True):
        if any(variable is one for one in broken) and np.isfinite(before).all() and not np.isfinite(after).all():
            layer, _, name = variable.path.rpartition("/")
            value = "NaN" if np.isnan(after).any() else "infinite"
            raise UserError(
                f"{path}: the state {name!r} of layer {layer!r} becomes {value} in a training step with the first "
                f"{records} records",
                hint="The data, feed() or a layer before this one gives NaN or infinite values for them. Look for a "
                "division by zero, such as the mean of a masked row without words; tf.math.divide_no_nan gives 0 "
                "there. Look for log(0) and for missing values, too.",
            )


def _with_range(variable: Any, rule: StateRule) -> StateRule:
    if not keras.backend.is_float_dtype(variable.dtype):
        return replace(rule, low=-_FLOAT32_INTEGERS_MAX, high=_FLOAT32_INTEGERS_MAX)
    return replace(rule, low=0.0) if variable.path.endswith("variance") else rule


# --- running the model ----------------------------------------------------------------------------------------------


def _some_records(example: Batch, count: int) -> tuple[Any, Any, Any]:
    """Features, labels and weights of the first records; of all where they can't be told apart."""
    given = example.features, example.labels, example.weights
    tensors = [one for one in tf.nest.flatten(given) if one is not None]
    if all(tf.is_tensor(one) and one.shape.rank and one.shape[0] == example.count for one in tensors):
        return tuple(tf.nest.map_structure(lambda one: None if one is None else one[:count], part) for part in given)
    return given


def _runner(built: BuiltModel, features: Any, labels: Any, weights: Any) -> Run:
    """A training step, run eagerly so that every run draws the same random numbers. The forward pass is enough."""
    if built.own is not None:
        return functools.partial(_run_own, built.own, features, labels, weights)

    def run(values: Sequence[Float64s]) -> list[Float64s]:
        seed_process(_SEED)
        mapping = [
            (variable, tf.cast(tf.reshape(tf.constant(value), variable.shape), variable.dtype))
            for variable, value in zip(built.assigned, values, strict=True)
        ]
        with keras.StatelessScope(mapping) as scope, serving.looking_up(RecordedIds(built.census)):
            built.model(features, training=True)
        return [_flat(scope.get_current_value(variable)) for variable in built.assigned]

    return run


def _run_own(own: OwnStep, features: Any, labels: Any, weights: Any, values: Sequence[Float64s]) -> list[Float64s]:
    """The model's own ``train_step()``; the model keeps its values."""
    seed_process(_SEED)
    with restoring():
        given = [
            (variable, tf.cast(tf.reshape(tf.constant(value), variable.shape), variable.dtype))
            for variable, value in zip(own.assigned, values, strict=True)
        ]
        own.train(given, features, labels, weights, None, own.model.trainable_variables)
        return [_flat(variable.value) for variable in own.assigned]


def _flat(value: Any) -> Float64s:
    return np.asarray(tf.cast(value, tf.float64)).reshape(-1)


# --- classification -------------------------------------------------------------------------------------------------


def _rules_of_batch(run: Run, variables: Sequence[Any]) -> list[StateRule | None]:
    """The rule of each variable for one batch; None if absent."""
    initial = [_flat(variable.value) for variable in variables]
    after = run(initial)
    values = [_starting_values(*each) for each in zip(variables, initial, after, strict=True)]
    steps = range(len(values[0]))
    together = [run([each[step] for each in values]) for step in steps]
    rules: list[StateRule | None] = []
    for number, variable in enumerate(variables):
        rule = _rule(_trial(variable, values[number], [one[number] for one in together]))
        if rule is None:
            # Perhaps it depends on other variables too. Then it has to have the same rule whatever values these have.
            alone = [
                _rule(
                    _trial(
                        variable,
                        values[number],
                        [run(_changed(others, number, value))[number] for value in values[number]],
                    )
                )
                for others in (initial, [each[2] for each in values])
            ]
            rule = _agreed(*alone)
        rules.append(rule)
    return rules


def _changed(values: Sequence[Float64s], number: int, value: Float64s) -> list[Float64s]:
    return [value if place == number else one for place, one in enumerate(values)]


def _starting_values(variable: Any, initial: Float64s, after: Float64s) -> list[Float64s]:
    """Values of the order of the variable's own, and others that are far above and below everything in a batch."""
    random = np.random.default_rng(_SEED)
    dtype = tf.as_dtype(variable.dtype)
    scale = max(1.0, _largest(initial), _largest(after))
    far = min(_FAR * scale, 0.2 * float(dtype.max)) if not dtype.is_bool else 1.0
    values = [
        initial,
        initial + scale * random.uniform(0.2, 1.0, initial.shape),
        initial + scale * random.uniform(1.0, 3.0, initial.shape),
        far * random.uniform(1.0, 2.0, initial.shape),
        -far * random.uniform(1.0, 2.0, initial.shape),
    ]
    if dtype.is_floating:
        return values
    low = 0.0 if dtype.is_bool or dtype.is_unsigned else -np.inf
    return [np.clip(np.rint(value), low, 1.0 if dtype.is_bool else np.inf) for value in values]


def _largest(values: Float64s) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _trial(variable: Any, before: Sequence[Float64s], after: Sequence[Float64s]) -> Trial:
    """Of the steps whose new values are finite."""
    held = np.stack([_flat(tf.cast(tf.constant(value), variable.dtype)) for value in before])
    finite = np.isfinite(after).all(axis=1)
    return Trial(
        before=held[finite], after=np.stack(after)[finite], decimals=3 if tf.as_dtype(variable.dtype).size == 2 else 6
    )


def _rule(trial: Trial) -> StateRule | None:
    """The rule that all steps of a trial follow."""
    if not trial.before.shape[1]:
        return StateRule(update=StateUpdate.SUM)
    if len(trial.before) < _STEPS_MIN:
        return None
    below, above = trial.after[trial.before.sum(axis=1).argmin()], trial.after[trial.before.sum(axis=1).argmax()]
    if rule := _affine(trial):
        return rule
    if trial.fits(np.maximum(trial.before, below)):
        return StateRule(update=StateUpdate.MAXIMUM)
    if trial.fits(np.minimum(trial.before, above)):
        return StateRule(update=StateUpdate.MINIMUM)
    return None


def _affine(trial: Trial) -> StateRule | None:
    """``m * before + x`` with one ``m`` for all elements and steps, and an ``x`` that is the same for all steps."""
    distances = trial.before - trial.before[trial.near]
    changes = trial.after - trial.after[trial.near]
    far = np.abs(distances).sum(axis=1).argmax()
    moved = distances[far] != 0
    if not moved.any():
        return None
    momentum = abs(round(float(np.median(changes[far][moved] / distances[far][moved])), trial.decimals))
    if not 0.0 <= momentum <= 1.0 or not trial.fits(trial.after[trial.near] + momentum * distances):
        return None
    if momentum == 1.0:
        return StateRule(update=StateUpdate.SUM)
    if momentum == 0.0:
        return StateRule(update=StateUpdate.ASSIGN)
    return StateRule(update=StateUpdate.MOVING_AVERAGE, momentum=momentum)


def _agreed(one: StateRule | None, other: StateRule | None) -> StateRule | None:
    """The rule that both batches follow, up to rounding."""
    if one is None or other is None or one.update is not other.update:
        return None
    return one if abs(one.momentum - other.momentum) <= 1e-5 else None
