"""Builds the user's model with its large embedding tables left to the ps; a model that can't be trained is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from keras.src.utils.naming import reset_uids  # clear_session(), the public way, also forgets the user's dtype policy.

from elasticdl.layers import Embedding, serving
from elasticdl.layers.served import ServedEmbedding
from elasticdl.shared import words
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.model.signature import RowTable, VariableKind
from elasticdl.shipping.own_steps import check_optimizers, has_own_step, overrides
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.embeddings.initializers import row_initializer
from elasticdl.worker.model.embeddings.lookups import RecordedIds
from elasticdl.worker.model.embeddings.recording import find_lookups
from elasticdl.worker.model.embeddings.swap import Census, ShapesOnly, table_bytes, taking
from elasticdl.worker.model.own_step import OwnStep
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule
from elasticdl.worker.model.user.randomness import seed_process

Made = TypeVar("Made")
REMAKES_MAX = 100
REGULARIZED_BYTES_MAX = 64 << 20
"""Largest table that stays dense because of its regularizer: all of it is pulled and pushed with each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A served table and the layer that looks rows up in it."""

    layer: Any
    number: int
    spec: RowTable


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel:
    """A model with its variables built and its tables served.

    Attributes:
        tables: the served ones, in order of their first call.
        assigned: weights that a training step assigns, in the model's order.
        own: trains the model by its own ``train_step()``; None: it has none.
    """

    model: Any
    census: Census
    tables: tuple[ServedTable, ...]
    assigned: tuple[Any, ...] = ()
    own: OwnStep | None = None


def build(
    module: UserModule,
    example: Batch,
    *,
    seed: int,
    swap_bytes_min: int,
    eager: bool = False,
    replicated: bool = False,
) -> BuiltModel:
    """Make the model, repeatedly until it is known which tables can be served.

    Args:
        example: a batch, to build models that wait for their first call.
        eager: call the model eagerly to find its ids.
        replicated: a training step of its own may have several optimizers.
    """

    def attempt(census: Census) -> tuple[Any, RecordedIds, OwnStep | None]:
        model, own = _made(module, example, census, seed, replicated=replicated)
        if own is not None:
            _keep_all_dense(model, census)
            recorded = RecordedIds(census)
            recorded.assigned = tuple((one, one.value) for one in own.assigned)
            return model, recorded, own
        with user_code(module.path, "the model"):
            recorded = find_lookups(model, example, census, training=True, eager=eager)
            if recorded.layers:
                find_lookups(model, example, census, training=False, eager=eager)
        _keep_regularized(module, recorded.layers.values(), census)
        return model, recorded, None

    census, (model, recorded, own) = _repeated(module, attempt, swap_bytes_min)
    tables = _tables(list(recorded.layers.values()), census)
    assigned = tuple(variable for variable, _ in recorded.assigned)
    return BuiltModel(model=model, census=census, tables=tables, assigned=assigned, own=own)


def look_at(
    module: UserModule, see: Callable[[Any], Made], *, seed: int, swap_bytes_min: int, replicated: bool = False
) -> Made:
    """Make the model before there is a batch, without the tables that will be served, to see inputs and outputs."""

    def attempt(census: Census) -> Made:
        with _making(census, seed):
            model = module.make_model()
            check_optimizers(model, replicated=replicated)  # Before it asks for columns and labels.
            return see(model)

    return _repeated(module, attempt, swap_bytes_min)[1]


def _repeated(module: UserModule, attempt: Callable[[Census], Made], swap_bytes_min: int) -> tuple[Census, Made]:
    """Repeat an attempt until no table turns out to be one that can't be served; returns its census and result."""
    kept: dict[int, str] = {}
    for _ in range(REMAKES_MAX):
        census = Census(swap_bytes_min=swap_bytes_min, kept=kept)
        try:
            made = attempt(census)
        except UserError:
            if census.outdated:
                continue
            raise
        if not census.outdated:
            return census, made
    raise InvariantError(f"{module.path}: the model was made {REMAKES_MAX} times and still changes")


def make(module: UserModule, example: Batch, census: Census, *, seed: int) -> Any:
    """Make the model once, its variables built; the same seed gives the same names and initial values."""
    return _made(module, example, census, seed, replicated=True)[0]


def _made(
    module: UserModule, example: Batch, census: Census, seed: int, *, replicated: bool
) -> tuple[Any, OwnStep | None]:
    """As ``make``, with what trains the model by its own ``train_step()``."""
    if module.weights:
        census.plain = True  # The file has the tables of all layers.
    with _making(census, seed):
        model = module.make_model()
        if not model.built and (overrides(model, "call") or not has_own_step(model)):
            with user_code(module.path, "the model's first call"):
                model(example.features, training=False)
        own = OwnStep.of(module, model, example, replicated=replicated)
        if module.weights:
            module.weights.load_into(model, module.path)
    _refuse(module, model)
    return model, own


@contextmanager
def _making(census: Census, seed: int) -> Iterator[None]:
    reset_uids()
    seed_process(seed)
    with taking(census), serving.looking_up(ShapesOnly()):
        yield


def _keep_all_dense(model: Any, census: Census) -> None:
    """Keep the tables of a model dense whose own ``train_step()`` takes the gradients of its weights."""
    for layer in model._flatten_layers():
        if isinstance(layer, ServedEmbedding) or (isinstance(layer, Embedding) and layer.is_served):
            census.keep_dense(layer, "the model's own train_step() takes the gradient of the whole table")


def _keep_regularized(module: UserModule, layers: Iterable[Any], census: Census) -> None:
    """Keep tables dense whose rows all have a gradient at every update, which no row can catch up on.

    The regularizer of an ``elasticdl.layers.Embedding`` is defined otherwise.

    Raises:
        UserError: such a table is too large to be dense.
    """
    for layer in layers:
        if isinstance(layer, Embedding) or layer.embeddings_regularizer is None or not layer.trainable:
            continue
        size = table_bytes(layer)
        if size > REGULARIZED_BYTES_MAX:
            raise UserError(
                f"{module.path}: embedding {layer.name} has an embeddings_regularizer, whose gradient changes all rows "
                "at every update. So the ps can't serve its table row by row, and with "
                f"{words.size(size)} it is too large to be dense (limit {words.size(REGULARIZED_BYTES_MAX)})",
                hint="Replace the regularizer by weight_decay of the optimizer, or use elasticdl.layers.Embedding, "
                "whose regularizer counts the rows of a batch only.",
            )
        census.keep_dense(layer, "the gradient of its regularizer changes all rows")


def _tables(layers: list[Any], census: Census) -> tuple[ServedTable, ...]:
    names: dict[str, int] = {}
    tables = []
    for layer in layers:
        name = layer.path or layer.name
        names[name] = names.get(name, 0) + 1
        initializer = row_initializer(layer.embeddings_initializer, layer.input_dim, layer.output_dim)
        if initializer is None:
            raise InvariantError(f"embedding {name} is served without a row initializer")
        spec = RowTable(
            name=name if names[name] == 1 else f"{name}#{names[name]}",
            width=layer.output_dim,
            initializer=initializer,
            input_dim=layer.input_dim or 0,
            kind=VariableKind.TRAINABLE if layer.trainable else VariableKind.FROZEN,
            min_count=getattr(layer, "min_count", 1) if layer.trainable else 1,
            expire_after=(getattr(layer, "expire_after", None) or 0) if layer.trainable else 0,
        )
        tables.append(ServedTable(layer=layer, number=census.number(layer), spec=spec))
    return tuple(tables)


def _refuse(module: UserModule, model: Any) -> None:
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False) is True:
            raise UserError(
                f"{module.path}: layer {layer.name!r} is stateful, but workers get batches in no fixed order"
            )
