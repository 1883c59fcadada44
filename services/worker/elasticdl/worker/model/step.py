"""The compiled step: from a batch, the dense vector and pulled rows to gradients, with no state of its own.

Variables are never assigned: the step runs the model in a ``keras.StatelessScope`` that maps each variable to its
slice of the dense vector, so that what the forward pass would move (BatchNorm's statistics) comes out as a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator  # Keras has no public name for it.

from elasticdl.layers import serving
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import VariableKind
from elasticdl.shipping.gradients import is_in_parts, on_parts, parts_of
from elasticdl.worker.model.batch import BatchSpec
from elasticdl.worker.model.build import BuiltModel
from elasticdl.worker.model.dense import DenseVariables, flat_concat
from elasticdl.worker.model.embeddings.lookups import PulledRows
from elasticdl.worker.model.embeddings.recording import record_ids
from elasticdl.worker.model.gradients import clip, magnitudes_of, squares_finite
from elasticdl.worker.model.metrics import MetricSet
from elasticdl.worker.model.optimizers import TranslatedOptimizer
from elasticdl.worker.model.own_step import OwnStep
from elasticdl.worker.model.step_metrics import StepMetrics
from elasticdl.worker.model.synchronized import StepSums, reducing
from elasticdl.worker.model.tensors import lend_copy
from elasticdl.worker.model.traced import TracedFunction
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule
from elasticdl.worker.model.user.randomness import BatchRandomness
from elasticdl.worker.ports import Reducer

NOTHING: tuple[()] = ()
"""Stands for absent weights: a traced function takes tensors and structures of tensors only."""
_NO_NUMBER = nullcontext(NOTHING)


class PulledTensors(NamedTuple):
    """What a worker pulled for one batch, as tensors.

    Attributes:
        dense: float32 (variables,).
        rows: per table, float32 (unique, width).
        inverses: per table, int32 (ids,).
    """

    dense: Any
    rows: tuple[Any, ...]
    inverses: tuple[Any, ...]


class Gradients(NamedTuple):
    """What the traced training function gives; see ``runner.StepResult``.

    ``dense``: the magnitudes of gathered variables follow the gradient. ``rows``: of each trainable table the gradient,
    or its parts and the row of each: to add them up outside takes 26 operations of TensorFlow less in DeepFM.
    ``finite``: see ``squares_finite``. ``unclipped``: the gradients before clipping, in parts; ``NOTHING`` without
    clipping. ``predictions``: ``NOTHING`` where it updates the metrics itself. ``metric_states``: see ``StepMetrics``.
    """

    loss: Any
    dense: Any
    statistics_update: Any
    rows: list[Any]
    finite: Any
    unclipped: Any
    predictions: Any
    metric_states: Any


class CompiledStep:
    """The model's functions, each traced once per kind of batch.

    Args:
        scales: the loss is scaled, for float16.
        eager: never trace.
        power: see ``Optimizer.power``; 0: no magnitudes are added up.
        synchronizes: a training step needs the other batches of its round.

    Attributes:
        traces: how often each function has been traced.
    """

    def __init__(
        self,
        module: UserModule,
        built: BuiltModel,
        dense: DenseVariables,
        optimizer: TranslatedOptimizer,
        metrics: dict[str, MetricSet],
        *,
        scales: bool,
        eager: bool,
        power: int,
        synchronizes: bool = False,
    ) -> None:
        self._module = module
        self._power = power
        self._code = user_code(module.path, "the model")
        self._metrics_code = user_code(module.path, "the metrics")
        self._loss = module.required("loss")
        self._model, self._census = built.model, built.census
        self._own: OwnStep | None = built.own
        self._own_loss = computes_loss(module, built.model)
        self._dense = dense
        self._optimizer = optimizer
        self._metrics = metrics
        self.train_metrics = StepMetrics(metrics["train"], apart=synchronizes)
        self._scales = scales
        self._eager = eager
        self._synchronizes = synchronizes
        self._specs = [table.spec for table in built.tables]
        self._layers = [table.layer for table in built.tables]
        self._trainable = [n for n, spec in enumerate(self._specs) if spec.kind is VariableKind.TRAINABLE]
        self._seeds = _seed_states(built.model)
        self._unused_seeds = tf.zeros((len(self._seeds), 2), tf.uint32)
        self._draws = True
        """Whether a training step draws from Keras' generators; known once it is traced."""
        self._scale = 1.0, tf.constant(1.0, tf.float32)
        """The last loss scale, and its tensor."""
        self._randomness = {kind: BatchRandomness(eager=eager) for kind in ("train", "evaluate")}
        self._functions: dict[tuple[str, str], TracedFunction] = {}
        self._measure: Callable[..., None] = self._update_metrics
        if not eager:
            self._measure = tf.function(self._update_metrics, autograph=False, reduce_retracing=True)
        self._places_of_ids: dict[str, list[int]] = {}
        """For each function that finds ids: per table, which of its outputs holds the table's ids."""
        self.traces: Counter[str] = Counter()

    def prepare(self, kind: str, spec: BatchSpec) -> None:
        """Trace a function before it is needed."""
        if not self._eager:
            with self._code:
                self._function(kind, spec)

    @property
    def can_overlap(self) -> bool:
        """Whether several batches can be trained side by side: no generator and no variable outlives a batch."""
        return not self._eager and self._own is None and not self._randomness["train"].is_shared

    def traced(self, kind: str, spec: BatchSpec) -> TracedFunction | None:
        """A function that has been traced; None if it has not been, or runs uncompiled."""
        return self._functions.get((kind, spec.key))

    def ids(self, spec: BatchSpec, features: Any, *, training: bool, found: list[Any] | None = None) -> list[Any]:
        """Flat int64 ids per table; tables that are given the same ids share one tensor.

        A model without tables is not called for them.

        Args:
            found: what the function ``train_ids`` gave for the batch, if it was called already.
        """
        if not self._layers:
            return []
        kind = "train_ids" if training else "evaluate_ids"
        distinct = self._call(kind, spec, features) if found is None else found
        return [distinct[place] for place in self._places_of_ids[kind]]

    def train(
        self,
        spec: BatchSpec,
        features: Any,
        labels: Any,
        weights: Any,
        pulled: PulledTensors,
        *,
        seed: int,
        scale: float,
        reducer: Reducer,
    ) -> Gradients:
        """Gradients and training metrics of one batch; the metrics of a step that needs its round: see ``measure``.

        Such steps may run side by side.
        """
        if self._draws:
            seeds = lend_copy(np.random.SeedSequence(seed).generate_state(2 * len(self._seeds)).reshape(-1, 2))
        else:
            seeds = self._unused_seeds
        held = self._scale
        if scale != held[0]:
            held = self._scale = scale, tf.constant(scale, tf.float32)
        with self._randomness["train"].batch(seed), self._call_number(reducer, scale) as number:
            try:
                result: Gradients = self._call(
                    "train", spec, features, labels, _present(weights), pulled, seeds, held[1], number
                )
            except BaseException:
                self.train_metrics.discard()
                raise
        return result

    def measure(self, labels: Any, predictions: Any, weights: Any, loss: float) -> None:
        """Compute the training metrics of a batch whose step left that out."""
        with self._metrics_code:
            try:
                self._measure(labels, predictions, _present(weights), tf.constant(loss, tf.float32))
            except BaseException:
                self.train_metrics.discard()
                raise

    def evaluate(
        self, spec: BatchSpec, features: Any, labels: Any, weights: Any, pulled: PulledTensors, *, seed: int
    ) -> Any:
        """Mean loss of one batch; the evaluation metrics are updated."""
        self.prepare("evaluate", spec)
        with self._randomness["evaluate"].batch(seed):
            found = self._call("evaluate", spec, features, labels, _present(weights), pulled)
        if self._own is None or self._own.evaluation is None:
            return found
        loss, states = found
        self._own.evaluation.add(np.asarray(states))
        return loss

    def predict(self, spec: BatchSpec, features: Any, values: tuple[Any, ...], pulled: PulledTensors) -> Any:
        """The model's outputs; ``values`` of dense variables in signature order; of ``pulled`` only the rows count."""
        return self._call("predict", spec, features, values, pulled._replace(dense=NOTHING))

    def _call_number(self, reducer: Reducer, scale: float) -> AbstractContextManager[Any]:
        """What a step is called with to find its reducer."""
        return self._numbered(reducer, scale) if self._synchronizes else _NO_NUMBER

    @contextmanager
    def _numbered(self, reducer: Reducer, scale: float) -> Iterator[Any]:
        with reducing(reducer, scale) as number:
            yield tf.constant(number, tf.int64)

    def _call(self, kind: str, spec: BatchSpec, *arguments: Any) -> Any:
        with self._code:
            return self._function(kind, spec)(*arguments)

    def _function(self, kind: str, spec: BatchSpec) -> Callable[..., Any]:
        run: Callable[..., Any] = getattr(self, f"_{kind}")
        if self._eager:
            return run
        key = (kind, spec.key)
        if key not in self._functions:
            global_seed_generator()  # Each thread has one of its own, and tracing can't make it.
            traced = tf.function(run, input_signature=self._input_signature(kind, spec), autograph=False)
            randomness = self._randomness.get(kind)
            self._functions[key] = randomness.trace(traced) if randomness else TracedFunction(traced)
        return self._functions[key]

    def _input_signature(self, kind: str, spec: BatchSpec) -> tuple[Any, ...]:
        pulled = PulledTensors(
            dense=tf.TensorSpec([self._dense.size], tf.float32),
            rows=tuple(tf.TensorSpec([None, table.width], tf.float32) for table in self._specs),
            inverses=tuple(tf.TensorSpec([None], tf.int32) for _ in self._specs),
        )
        labelled = (spec.features, spec.labels, _present(spec.weights), pulled)
        seeds = (tf.TensorSpec([len(self._seeds), 2], tf.uint32), tf.TensorSpec([], tf.float32))
        number = tf.TensorSpec([], tf.int64) if self._synchronizes else NOTHING
        signatures: dict[str, tuple[Any, ...]] = {
            "train": (*labelled, *seeds, number),
            "evaluate": labelled,
            "predict": (
                spec.features,
                tuple(tf.TensorSpec(one.shape, tf.float32) for one in self._dense.specs),
                pulled._replace(dense=NOTHING),
            ),
        }
        return signatures.get(kind, (spec.features,))

    # --- what is traced: pure functions of their arguments, but for metrics ----------------------------------------

    def _traced(self, kind: str) -> None:
        if not tf.executing_eagerly():
            self.traces[kind] += 1

    def _train_ids(self, features: Any) -> list[Any]:
        return self._distinct_ids("train_ids", features, training=True)

    def _evaluate_ids(self, features: Any) -> list[Any]:
        return self._distinct_ids("evaluate_ids", features, training=False)

    def _distinct_ids(self, kind: str, features: Any, *, training: bool) -> list[Any]:
        self._traced(kind)
        ids = record_ids(self._model, features, self._census, training=training).ids(self._layers)
        distinct = list({id(flat): flat for flat in ids}.values())
        self._places_of_ids[kind] = [next(n for n, one in enumerate(distinct) if one is flat) for flat in ids]
        return distinct

    def _train(
        self,
        features: Any,
        labels: Any,
        weights: Any,
        pulled: PulledTensors,
        seeds: Any,
        scale: Any,
        number: Any,
    ) -> Gradients:
        self._traced("train")
        values = self._dense.split(pulled.dense)
        if self._own is not None:
            return self._train_own(self._own, values, features, labels, weights, pulled, seeds, scale)
        count = self._dense.trainable_count
        watched = [*values[:count], *(pulled.rows[number] for number in self._trainable)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            drawn = self._seeded(seeds)
            sums = StepSums(number).taking() if self._synchronizes else nullcontext()
            with self._stateless(values, pulled, seeds=drawn) as scope, sums:
                predictions = self._model(features, training=True)
                loss = self._mean_loss(features, labels, predictions, weights, pulled, training=True)
            aim = loss * scale if self._scales else loss
        if not tf.executing_eagerly():
            self._draws = any(seed.consumers() for _, seed in drawn)
        gradients = tape.gradient(aim, watched, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        if self._scales:
            gradients = [on_parts(lambda parts: parts / scale, gradient) for gradient in gradients]
        state = flat_concat(scope.get_current_value(variable) for variable in self._dense.statistics)
        metric_states: Any = NOTHING
        if not self._synchronizes:
            metric_states = self.train_metrics.update(labels, predictions, _absent(weights), loss)
            predictions = NOTHING
        return self._checked(loss, gradients, state, pulled)._replace(
            predictions=predictions, metric_states=metric_states
        )

    def _train_own(
        self,
        own: OwnStep,
        values: list[Any],
        features: Any,
        labels: Any,
        weights: Any,
        pulled: PulledTensors,
        seeds: Any,
        scale: Any,
    ) -> Gradients:
        """By the model's own ``train_step()``."""
        given = [*self._dense.mapping(values), *self._seeded(seeds)]
        trainable = self._dense.variables[: self._dense.trainable_count]
        scaled = scale if self._scales else None
        loss, gradients, states = own.train(given, features, labels, _absent(weights), scaled, trainable)
        state = flat_concat(variable.value for variable in self._dense.statistics)
        return self._checked(loss, gradients, state, pulled)._replace(metric_states=states)

    def _seeded(self, seeds: Any) -> list[tuple[Any, Any]]:
        """The states of Keras' generators for a step."""
        unstacked = zip(self._seeds, tf.unstack(seeds, len(self._seeds)), strict=True)
        return [(state, tf.cast(seed, state.dtype)) for state, seed in unstacked]

    def _checked(self, loss: Any, gradients: list[Any], state: Any, pulled: PulledTensors) -> Gradients:
        """The gradients, clipped, with what the batch changes in the layer state, and whether all is finite."""
        count = self._dense.trainable_count
        update = self._dense.state_update(pulled.dense[self._dense.trainable_size :][: tf.size(state)], state)
        clipped = clip(gradients, self._optimizer)
        dense = flat_concat([*map(tf.convert_to_tensor, clipped[:count]), *self._magnitudes(clipped[:count])])
        # One pass over the flat vector is cheaper than one per variable, but clipping hides infinite values.
        is_clipped = clipped is not gradients
        parts = [parts_of(gradient) for gradient in (gradients if is_clipped else clipped[count:])]
        checked = parts if is_clipped else [dense, *parts]
        finite = squares_finite(loss, [update, *checked] if self._dense.statistics else checked)
        rows = [(one.values, one.indices) if is_in_parts(one) else one for one in clipped[count:]]
        return Gradients(loss, dense, update, rows, finite, checked if is_clipped else NOTHING, NOTHING, NOTHING)

    def _magnitudes(self, gradients: list[Any]) -> list[Any]:
        """The magnitudes of the gathered variables, which the first trace finds."""
        if self.traces["train"] == 1 and not tf.executing_eagerly():
            self._dense.mark_gathered(self._power > 0 and is_in_parts(gradient) for gradient in gradients)
        pairs = zip(gradients, self._dense.specs, strict=False)  # The specs of what is not trained come last.
        return [magnitudes_of(gradient, self._power) for gradient, spec in pairs if spec.gathered]

    def _update_metrics(self, labels: Any, predictions: Any, weights: Any, loss: Any) -> None:
        self._traced("measure")
        self._metrics["train"].update(labels, predictions, _absent(weights), loss)

    def _evaluate(self, features: Any, labels: Any, weights: Any, pulled: PulledTensors) -> Any:
        self._traced("evaluate")
        values = self._dense.split(pulled.dense)
        seeds = None
        if self._own is not None:  # Its training steps leave other values in the generators.
            seeds = self._seeded(self._unused_seeds)
            if self._own.evaluation is not None:
                given = [*self._dense.mapping(values), *seeds]
                return self._own.evaluate(given, features, labels, _absent(weights))
        with self._stateless(values, pulled, seeds=seeds):
            predictions = self._model(features, training=False)
            loss = self._mean_loss(features, labels, predictions, weights, pulled, training=False)
        self._metrics["evaluate"].update(labels, predictions, _absent(weights), loss)
        return loss

    def _predict(self, features: Any, values: tuple[Any, ...], pulled: PulledTensors) -> Any:
        self._traced("predict")
        with self._stateless(list(values), pulled):
            return self._model(features, training=False)

    @contextmanager
    def _stateless(self, values: list[Any], pulled: PulledTensors, seeds: list[Any] | None = None) -> Iterator[Any]:
        mapping = [*self._dense.mapping(values), *(seeds or ())]
        lookup = PulledRows(self._layers, list(pulled.rows), list(pulled.inverses))
        with keras.StatelessScope(mapping, collect_losses=True) as scope, serving.looking_up(lookup):
            yield scope

    def _mean_loss(
        self, features: Any, labels: Any, predictions: Any, weights: Any, pulled: PulledTensors, *, training: bool
    ) -> Any:
        """The user's loss, averaged if it is one value per record, plus what layers and regularizers add.

        A model's own ``compute_loss()`` decides for itself what layers add, as in ``fit()``.
        """
        if self._own_loss:
            weight = _absent(weights)
            mode = {"training": training} if self._model._compute_loss_has_training_arg else {}
            found = self._model.compute_loss(x=features, y=labels, y_pred=predictions, sample_weight=weight, **mode)
            return self._with_tables(tf.reduce_mean(tf.cast(tf.convert_to_tensor(found), tf.float32)), [], pulled)
        arguments = (labels, predictions) if isinstance(weights, tuple) else (labels, predictions, weights)
        loss = tf.reduce_mean(tf.cast(tf.convert_to_tensor(self._loss(*arguments)), tf.float32))
        added = [tf.reduce_sum(tf.cast(extra, tf.float32)) for extra in self._model.losses]
        regularized = sum(variable.regularizer is not None for variable in self._model.trainable_weights)
        if not self._module.has_loss and len(self._model.losses) == regularized:
            raise UserError(
                f"{self._module.path}: the model is compiled without a loss, and no layer adds one",
                hint="Give compile() a loss, call add_loss() in a layer, or define loss(labels, predictions).",
            )
        return self._with_tables(loss, added, pulled)

    def _with_tables(self, loss: Any, added: list[Any], pulled: PulledTensors) -> Any:
        """The sum of losses, with what regularizers of tables on the ps add."""
        for layer, rows, spec in zip(self._layers, pulled.rows, self._specs, strict=True):
            if layer.embeddings_regularizer is not None and spec.kind is VariableKind.TRAINABLE:
                added.append(tf.cast(layer.embeddings_regularizer(rows), tf.float32))
        return tf.add_n([loss, *added])


def computes_loss(module: UserModule, model: Any) -> bool:
    """Whether the model has a ``compute_loss()`` of its own, and the model file no ``loss`` in its place."""
    return type(model).compute_loss is not keras.Model.compute_loss and module.value("loss") is None


def _seed_states(model: Any) -> list[Any]:
    """State variables of every generator that the model may draw from, Keras' global one included."""
    generators = [generator for layer in model._flatten_layers() for generator in layer._seed_generators]
    return [generator.state for generator in dict.fromkeys([*generators, global_seed_generator()])]


def _present(weights: Any) -> Any:
    return NOTHING if weights is None else weights


def _absent(weights: Any) -> Any:
    return None if isinstance(weights, tuple) else weights
