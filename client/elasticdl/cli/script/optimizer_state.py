"""The state of an optimizer after a job: ``model.optimizer`` has it as after ``fit()``, and ``save()`` keeps it."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.model.manifests import (
    MANIFEST_NAME,
    ChunkPart,
    Manifest,
    manifest_uris,
    read_chunk,
    read_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.partitioning import dense_part, mask_of
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.model.signature import EMA_MOMENTUM, ModelSignature, VariableKind
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectStore, open_store
from elasticdl.shipping.bits import floats_of, scatter
from elasticdl.shipping.own_steps import optimizers_of

Floats = npt.NDArray[np.float32]
SLOTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sgd": ("momentum",),
        "adagrad": ("accumulator",),
        "adam": ("momentum", "velocity", "velocity_hat"),
        "adamw": ("momentum", "velocity", "velocity_hat"),
        "rmsprop": ("velocity", "average_gradient", "momentum"),
        "ftrl": ("accumulator", "linear"),
        "adadelta": ("accumulated_grad", "accumulated_delta_var"),
        "adamax": ("momentum", "norm"),
        "nadam": ("momentum", "velocity"),
        "lion": ("momentum",),
    }
)
"""Optimizer -> Keras' names of its variables in the order of the ps. Those that its options leave out are absent."""
_movers: WeakKeyDictionary[Any, Mapping[int, Any]] = WeakKeyDictionary()
"""Model whose own step has several optimizers -> which one moves a variable, by the variable's ``id()``."""
_AVERAGE = "average"
_NADAM_DECAY = 0.96


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a job's snapshots say of its optimizer, and of the model.

    Attributes:
        slots: float32[slots, trainable elements], in the order of the ps, averages last.
        iteration: updates.
        weights: float32[elements], in the order of the signature; empty if they were not asked for.
    """

    signature: ModelSignature
    slots: Floats
    iteration: int
    weights: Floats = field(default_factory=lambda: np.zeros(0, np.float32))


def note_movers(model: Any, movers: Mapping[int, Any]) -> None:
    """Note which optimizers the own step of a model applies, see ``Trial.movers``."""
    _movers[model] = movers


def restore_or_say(model: Any, storage: str, job: str) -> None:
    """As ``restore``; says why on this process' output if the optimizer does not have the state."""
    if reason := restore(model, storage, job):
        sys.stdout.write(sentence(model, job, reason))


def sentence(model: Any, job: str, reason: str) -> str:
    """Says that the optimizer does not have the state of a job, and why."""
    return f"The optimizer of {model.name} does not have the state of job {job}: {reason}.\n"


def restore(model: Any, storage: str, job: str) -> str:
    """Give a model's optimizer the state that it has at the end of a job.

    Args:
        storage: URI of the folder that holds the job's snapshots.

    Returns:
        Why it does not have that state; empty: it has.
    """
    try:
        state = read(open_store(storage), storage, job)
    except ElasticDLError as error:
        return f"a snapshot can't be read: {error.args[0]}"
    if state is None:
        return "the snapshots lack a part of the model"
    if assign(model, state):
        return ""
    is_one = len(optimizers_of(model)) == 1
    return "the snapshots are of another model or optimizer" if is_one else "train_step() has several optimizers"


def restore_interrupted(model: Any, storage: str, job: str) -> bool:
    """Give a model the weights and the optimizer's state of the newest snapshots of a job.

    Returns:
        Whether there were such snapshots; if not, the model stays as it is.
    """
    try:
        state = read(open_store(storage), storage, job, weighted=True)
    except ElasticDLError:
        return False
    if state is None or not _assign_weights(model, state):
        return False
    assign(model, state)
    return True


def _assign_weights(model: Any, state: State) -> bool:
    """Assign the weights of a state to a model, if it has all of them; returns whether it has."""
    seen: Counter[str] = Counter()
    variables = {}
    for variable in model.weights:  # The names of a signature: several variables may have the same path.
        seen[variable.path] += 1
        number = seen[variable.path]
        variables[variable.path if number == 1 else f"{variable.path}#{number}"] = variable
    dense = state.signature.dense
    if any(one.name not in variables or one.shape != tuple(variables[one.name].shape) for one in dense):
        return False
    parts = np.split(state.weights, np.cumsum([one.size for one in dense])[:-1])
    for one, values in zip(dense, parts, strict=True):
        variables[one.name].assign(values.reshape(one.shape))
    return True


def read(store: ObjectStore, storage: str, job: str, *, weighted: bool = False) -> State | None:
    """The state in the newest snapshots of a job; None: they lack a part of the model.

    Dense parts only: no kernel of the ps is compiled for it. The model of a script has no tables on the ps.

    Args:
        weighted: whether the state has the weights, too.

    Raises:
        ElasticDLError: a snapshot can't be read.
    """
    uris = manifest_uris(store, snapshots_folder(storage, JobId(job)), MANIFEST_NAME)
    manifests = [(uri, read_manifest(store, uri)) for uri in uris]
    groups = [
        (group, number, uri, manifest)
        for uri, manifest in manifests
        for number, group in enumerate(manifest.groups)
        if not group.move
    ]
    groups.sort(key=lambda one: -one[0].ledger.step)
    missing = mask_of(ALL)
    chosen = []
    for group, number, uri, manifest in groups:
        mine = mask_of(group.partitions)
        if (missing & mine).any():
            chosen.append((group, number, uri, manifest))
            missing &= ~mine
    if missing.any():
        return None
    signature = ModelSignature.from_json(chosen[0][3].signature)
    trainable = sum(one.size for one in signature.dense if one.kind is VariableKind.TRAINABLE)
    slots = np.zeros((0, trainable), np.float32)
    weights = np.zeros(sum(one.size for one in signature.dense) if weighted else 0, np.float32)
    for group, number, uri, manifest in reversed(chosen):  # What is newer replaces what is older.
        values, part = _dense(store, uri, manifest, number), dense_part(signature.dense, group.partitions)
        count = sum(one.stop - one.start for one in part.gradients)
        rows = (values.size - part.size) // count if count else 0
        if len(slots) < rows:
            slots = np.zeros((rows, trainable), np.float32)
        found = values[count : count * (1 + rows)].reshape(rows, count)
        start = 0
        for place in part.gradients if rows else ():
            stop = start + place.stop - place.start
            slots[:, place] = found[:, start:stop]
            start = stop
        if weighted:
            part.scatter(np.concatenate([values[:count], values[count * (1 + rows) :]]), weights)
    iteration = min(group.iteration for group, *_ in chosen)
    return State(signature=signature, slots=slots, iteration=iteration, weights=weights)


def assign(model: Any, state: State) -> bool:
    """Assign a state to the variables of a model's optimizer; returns whether it fits."""
    signature = state.signature
    specs = [one for one in signature.dense if one.kind is VariableKind.TRAINABLE]
    variables = [one for one in model.weights if one.trainable]
    if [one.shape for one in specs] != [tuple(one.shape) for one in variables]:
        return False
    if signature.optimizer.is_keras:
        return _assign_kept(_moved(model, variables), state, variables)
    optimizer = _inner(model.optimizer)
    if not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    known: dict[str, list[Any]] = defaultdict(list)
    for variable in optimizer.variables:
        known[variable.name].append(variable)
    possible = SLOTS.get(signature.optimizer.name, ()) if variables else ()
    names = [name for name in possible if _name(variables[0], name) in known]
    names += [_AVERAGE] * (EMA_MOMENTUM in signature.optimizer.hyperparameters)
    if len(names) != len(state.slots):
        return False
    stops = np.cumsum([one.size for one in specs])[:-1]
    for name, values in zip(names, state.slots, strict=True):
        for variable, value in zip(variables, np.split(values, stops), strict=True):
            if slots := known.get(_name(variable, name)):  # Several variables may have the same path.
                slots.pop(0).assign(value.reshape(variable.shape))
    optimizer.iterations.assign(state.iteration)
    if isinstance(optimizer, keras.optimizers.Nadam):
        steps = np.arange(1, state.iteration + 1)
        optimizer._u_product.assign(np.prod(optimizer.beta_1 * (1.0 - 0.5 * _NADAM_DECAY**steps)))
    return True


def _moved(model: Any, variables: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    """The optimizers of a model, in the order of ``KerasOptimizers``, and the variables that each of them moves."""
    movers = _movers.get(model) or {id(one): model.optimizer for one in variables}
    applied = list(movers.values())
    first = model.optimizer if any(one is model.optimizer for one in applied) else applied[0]
    found = {id(first): (first, list[Any]())}
    for variable in variables:
        if (mover := movers.get(id(variable))) is not None:
            found.setdefault(id(mover), (mover, []))[1].append(variable)
    return [(_inner(optimizer), moved) for optimizer, moved in found.values()]


def _inner(optimizer: Any) -> Any:
    return optimizer.inner_optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else optimizer


def _assign_kept(moved: Sequence[tuple[Any, list[Any]]], state: State, variables: Sequence[Any]) -> bool:
    """Assign what optimizers keep that Keras runs in each replica: the bits of their variables, row by row.

    Args:
        moved: the optimizers, and the variables that each one moves. Only one that is alone may keep averages.
    """
    for optimizer, own in moved:
        if not optimizer.built:
            optimizer.build(own)
    averages = moved[0][0]._model_variables_moving_average if moved[0][0].use_ema else []
    held = [one for optimizer, _ in moved for one in optimizer.variables]
    kept = [one for one in held if not any(one is average for average in averages)]
    floats = state.signature.optimizer.kept
    rows = state.slots[: len(state.slots) - bool(averages)].reshape(-1)
    if sum(floats_of(one).size for one in kept) != floats or rows.size < floats:
        return False
    scatter(rows, kept)
    start = 0
    for variable, average in zip(variables, averages, strict=False):
        size = int(np.prod(variable.shape))
        average.assign(state.slots[-1, start : start + size].reshape(variable.shape))
        start += size
    return True


def _name(variable: Any, slot: str) -> str:
    """Keras' name of what an optimizer keeps of a variable."""
    return f"{variable.path.replace('/', '_')}_{slot}"


def _dense(store: ObjectStore, uri: str, manifest: Manifest, group: int) -> Floats:
    """The dense values of a group: weights, slots and fixed values."""
    (chunk,) = (one for one in manifest.chunks if one.group == group and one.part is ChunkPart.DENSE)
    return np.frombuffer(read_chunk(store, uri, chunk), np.float32)
