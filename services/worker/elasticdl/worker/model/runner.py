"""The model as the worker uses it: signature, ids, steps, metrics; NumPy arrays in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.model.dedup import sum_parts, sum_rows
from elasticdl.shared.model.metric_states import MetricArrays
from elasticdl.shared.model.signature import EMA_MOMENTUM, ModelSignature, RowTable, VariableKind
from elasticdl.shared.wire.messages import NO_DOUBLES
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.build import ServedTable, build
from elasticdl.worker.model.dense import DenseVariables, Float32Array
from elasticdl.worker.model.gradients import LOSS_SCALE_MIN, all_finite, loss_scale
from elasticdl.worker.model.keras_optimizers import KerasOptimizers, needs_keras, trained_by
from elasticdl.worker.model.layer_state import state_rules
from elasticdl.worker.model.metrics import MetricSet
from elasticdl.worker.model.optimizers import TranslatedOptimizer, set_by_tasks, translate
from elasticdl.worker.model.step import NOTHING, CompiledStep, Gradients, PulledTensors
from elasticdl.worker.model.synchronized import Alone, synchronizes
from elasticdl.worker.model.tensors import lend
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.class_weights import NAME as CLASS_WEIGHT
from elasticdl.worker.model.user.module import UserModule
from elasticdl.worker.ports import Reducer

SWAP_BYTES_MIN = 2 << 20

TableRows = Mapping[str, tuple[Float32Array, NDArray[np.int32]]]
"""Table name -> unique rows (unique, width) and the row of each of its flat ids (ids,)."""

_NO_ROWS: TableRows = MappingProxyType({})
RowMagnitudes = dict[str, tuple[NDArray[np.int64], Float32Array]]
"""See ``StepResult.row_magnitudes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """How the model is run.

    Attributes:
        seed: of the job; seeds initial values and rows.
        swap_bytes_min: plain Keras embedding tables from this size on are served by the ps.
        eager: run everything uncompiled, for a debugger.
        has_callbacks: they may set the learning rate, so every push carries it.
        replicated: every worker has a replica of the model, so Keras can run optimizers on whole variables.
        adds_magnitudes: the squares of a lookup's gradient are added up for the optimizer, as in ``fit()``. Sums of
            float16 can't hold them.
    """

    seed: int = 0
    swap_bytes_min: int = SWAP_BYTES_MIN
    eager: bool = False
    synchronous: bool = False
    has_callbacks: bool = False
    replicated: bool = False
    adds_magnitudes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a batch has to teach.

    Attributes:
        loss: mean loss of the batch, regularizers included.
        dense_gradient: float32 (trainable + gathered,), all trainable variables in signature order, clipped, then the
            magnitudes of the gathered ones.
        statistics_update: float32 (statistics,), what the batch contributes to them, see ``StateUpdate``.
        row_gradients: per trainable table, float32 (unique, width), clipped.
        row_magnitudes: per trainable table, of the rows that the batch uses several times: their places among the
            unique ones, int64 (repeated,), and their magnitudes, float32 (repeated, width). None: absent.
        metric_states: float64, state variables of the training metrics after this batch alone; they add up.
        finite: loss, gradients and statistics hold neither NaN nor infinity.
        overflow: they do not, but the loss does: push an empty batch, the loss scale of float16 has been halved. False
            once the scale can't be halved any more: then the gradients are NaN or infinite without float16, too.
        problem: what is not finite, with the name of its variable; empty if all is.
        loss_scale: what the loss was multiplied by.
        predictions: the model's outputs, for ``ModelRunner.measure``; empty where the step has computed the metrics.
    """

    loss: float
    dense_gradient: Float32Array
    statistics_update: Float32Array
    row_gradients: Mapping[str, Float32Array]
    row_magnitudes: RowMagnitudes
    metric_states: NDArray[np.float64]
    finite: bool
    overflow: bool = False
    problem: str = ""
    loss_scale: float = 1.0
    predictions: Any = ()


class ModelRunner:
    """The user's model, built and compiled.

    Building and tracing happen in the constructor; ``ids`` may then run in another thread than the step.

    Args:
        example: any batch of training data, to build and trace with.

    Raises:
        UserError: something in the model can't be honoured, with the reason.
    """

    def __init__(self, module: UserModule, example: Batch, settings: RunnerSettings | None = None) -> None:
        self.example = example
        self.settings = settings or RunnerSettings()
        seed, swap_bytes_min, eager = self.settings.seed, self.settings.swap_bytes_min, self.settings.eager
        self.built = build(
            module, example, seed=seed, swap_bytes_min=swap_bytes_min, eager=eager, replicated=self.settings.replicated
        )
        self.module = module = module.completed_by(self.built.model)
        own = self.built.own
        if not example.spec.has_labels and module.has_loss and own is None:
            raise UserError(
                f"{module.path}: the feed gives no labels, and the loss of the model needs them",
                hint="Return (features, labels) from the feed. Only a model whose layers call add_loss() needs none.",
            )
        optimizer, self.optimizer = self._translated()
        self.has_schedule = bool(self.optimizer.optimizer.schedule) or self.optimizer.optimizer.rate_from_worker
        """Whether the learning rate follows from the number of updates."""
        if self.settings.has_callbacks:
            self.optimizer = set_by_tasks(self.optimizer)
        self.tables = tuple(map(self._with_decay, self.built.tables))
        self._trainable = [table.name for table in self.tables if table.kind is VariableKind.TRAINABLE]
        self._refuse_averages_of_tables()
        self.synchronizes = synchronizes(self.built.model, module.path, synchronous=self.settings.synchronous)
        """Whether a training step needs the other batches of its round. Such steps may run side by side."""
        rules = state_rules(self.built, example, module.path)
        any_constraint = self.optimizer.by_keras
        self.dense = DenseVariables(self.built.model, self.optimizer.decays, rules, any_constraint=any_constraint)
        self.updater = self._updater_of(optimizer) if self.optimizer.by_keras else None
        """What runs an optimizer that has no formula, on replicas; None: it has one."""
        self._initial = self.dense.initial()
        self._loss_scale = loss_scale(self.built.model, self.optimizer)
        self._metrics: dict[str, Any] = {purpose: MetricSet(module) for purpose in ("train", "evaluate", "merge")}
        self._probed: list[MetricSet] = [*self._metrics.values()]
        if own is not None:
            self._probed = [self._metrics["evaluate"], self._metrics["merge"]]
            self._metrics |= own.metrics(evaluated=self._metrics["evaluate"], merged=self._metrics["merge"])
        scales = self._loss_scale is not None
        self._power = self.optimizer.optimizer.power if self.settings.adds_magnitudes else 0
        self.step = CompiledStep(
            module,
            self.built,
            self.dense,
            self.optimizer,
            self._metrics,
            scales=scales,
            eager=eager,
            power=self._power,
            synchronizes=self.synchronizes,
        )
        if self.tables:
            self.step.prepare("train_ids", example.spec)
        if example.labels is not None:
            if own is None:
                self._check_weights()
            if own is None or own.is_evaluated_by_keras:
                self.probe_metrics()
            self.step.prepare("train", example.spec)
            self._check_overlap()

    def describe(self) -> list[str]:
        """Lines for the worker's start: which tables are served, and what else the ps holds."""
        return [*self.built.census.describe(), *self.dense.describe(), *self._describe_decay()]

    def signature(self) -> ModelSignature:
        """Names, shapes, tables and optimizer: what the ps set is initialised with."""
        optimizer, seed = self.optimizer.optimizer, self.settings.seed
        return ModelSignature(dense=self.dense.specs, tables=self.tables, optimizer=optimizer, seed=seed)

    def initial_dense(self) -> Float32Array:
        """Initial values of all dense variables, flat, in signature order; equal on every worker."""
        return self._initial.copy()

    def rate(self, iteration: int) -> float:
        """The learning rate after a number of updates."""
        with user_code(self.module.path, "the learning-rate schedule"):
            return self.optimizer.rate(iteration)

    def ids(self, batch: Batch, *, training: bool = True) -> dict[str, NDArray[np.int64]]:
        """The ids that each table is asked for, flat, in the order in which the step will use them.

        Returns:
            Table name -> int64 (ids,), duplicates included; tables that are given the same ids share one array.

        Raises:
            UserError: an id outside its table.
        """
        found = self.step.ids(batch.spec, batch.features, training=training, found=batch.ids if training else None)
        arrays = {id(flat): np.asarray(flat) for flat in found}
        ids = {table.name: arrays[id(flat)] for table, flat in zip(self.tables, found, strict=True)}
        ranges = {id(one): (int(one.min()), int(one.max())) for one in arrays.values() if one.size}
        for table in self.tables:
            if table.input_dim and id(ids[table.name]) in ranges:
                self._check_range(table.name, *ranges[id(ids[table.name])], table.input_dim)
        return ids

    def train(
        self,
        batch: Batch,
        dense: Float32Array,
        rows: TableRows = _NO_ROWS,
        *,
        step_seed: int,
        reducer: Reducer | None = None,
    ) -> StepResult:
        """Compute the gradients and the training metrics of one batch.

        Args:
            batch: from a ``train`` feeder, of the example's spec.
            dense: float32, all dense variables in signature order.
            rows: pulled rows of the batch's ids.
            step_seed: seeds dropout and whatever else draws from Keras' generators.
            reducer: where the step needs its round: adds up over its batches; the caller calls ``measure`` then. None:
                the batch is alone.

        Raises:
            UserError: the feed changed the type of its batches.
        """
        if batch.spec.key != self.example.spec.key:
            raise UserError(f"{self.module.path}: the feed of this batch has other types or shapes than the first one")
        scale = self._loss_scale.value if self._loss_scale is not None else 1.0
        may_overflow = self._loss_scale is not None and not self._loss_scale.is_least
        pulled = self._pulled(dense, rows)
        gradients = self.step.train(
            batch.spec,
            batch.features,
            batch.labels,
            batch.weights,
            pulled,
            seed=step_seed,
            scale=scale,
            reducer=reducer or Alone(),
        )
        loss = float(gradients.loss)
        row_gradients, row_magnitudes = self._summed(gradients.rows, rows)
        finite = bool(gradients.finite) or all_finite(
            [loss, gradients.statistics_update, *(gradients.unclipped or [gradients.dense, *row_gradients.values()])]
        )
        result = StepResult(
            loss=loss,
            dense_gradient=np.asarray(gradients.dense),
            statistics_update=np.asarray(gradients.statistics_update),
            row_gradients=row_gradients,
            row_magnitudes=row_magnitudes,
            finite=finite,
            overflow=may_overflow and not finite and math.isfinite(loss),
            problem="" if finite else self._problem(gradients),
            loss_scale=scale,
            metric_states=NO_DOUBLES if self.synchronizes else self.step.train_metrics.states(gradients.metric_states),
            predictions=gradients.predictions,
        )
        return self.measure(batch, result) if reducer is None else result

    def measure(self, batch: Batch, result: StepResult) -> StepResult:
        """Update the loss scale with a batch; returns the result with metrics, if its step has left them out."""
        if self._loss_scale is not None:
            self._loss_scale.update(finite=result.finite, scale=result.loss_scale)
        if not self.synchronizes:
            return result
        self.step.measure(batch.labels, result.predictions, batch.weights, result.loss)
        return replace(result, metric_states=self.step.train_metrics.states(()))

    def evaluate(self, batch: Batch, dense: Float32Array, rows: TableRows = _NO_ROWS, *, step_seed: int = 0) -> float:
        """Update the evaluation metrics with one batch; arguments as for ``train``. Returns the batch's mean loss."""
        if batch.labels is None:
            raise UserError(f"{self.module.path}: the feed gives no labels for evaluation")
        pulled = self._pulled(dense, rows)
        return float(
            self.step.evaluate(batch.spec, batch.features, batch.labels, batch.weights, pulled, seed=step_seed)
        )

    def variables(self, dense: Float32Array) -> tuple[Any, ...]:
        """The dense variables as tensors, for many calls of ``predict``: to split the vector copies the model."""
        self._check_dense(dense)
        return tuple(self.dense.split(tf.constant(dense)))

    def predict(self, batch: Batch, dense: Float32Array | tuple[Any, ...], rows: TableRows = _NO_ROWS) -> Any:
        """The model's outputs for one batch, as arrays in the structure that the model gives.

        Args:
            dense: float32, all dense variables in signature order, or what ``variables`` gave for them.
            rows: pulled rows of the batch's ids.
        """
        values = dense if isinstance(dense, tuple) else self.variables(dense)
        outputs = self.step.predict(batch.spec, batch.features, values, self._tensors(NOTHING, rows))
        return tf.nest.map_structure(np.asarray, outputs)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the results of an evaluation; ``loss`` is the first one."""
        names: tuple[str, ...] = self._metrics["merge"].names
        return names

    @property
    def metric_directions(self) -> dict[str, str]:
        """Result -> ``up`` if more is better, ``down`` if less is; empty if Keras does not know."""
        directions: dict[str, str] = self._metrics["merge"].directions
        return directions

    def metric_states(self) -> MetricArrays:
        """State variables of the evaluation metrics since their last reset; states add up."""
        states: MetricArrays = self._metrics["evaluate"].states()
        return states

    def reset_metrics(self) -> None:
        """Reset the evaluation metrics."""
        self._metrics["evaluate"].reset()

    def split_states(self, states: NDArray[np.float64]) -> MetricArrays:
        """A sum of ``StepResult.metric_states`` by metric."""
        arrays: MetricArrays = self._metrics["merge"].split(states)
        return arrays

    def forget(self) -> None:
        """Forget the batches that were computed so far. Metrics and the loss scale are all that remembers them."""
        self.reset_metrics()
        self._loss_scale = loss_scale(self.built.model, self.optimizer)

    def merge(self, states: MetricArrays) -> dict[str, float]:
        """Results of the summed states of many tasks; ``loss`` is among them."""
        results: dict[str, float] = self._metrics["merge"].results(states)
        return results

    def probe_metrics(self) -> None:
        """Check on the example that every metric's states add up; builds metrics that wait for their first update."""
        batch = self.example
        ids = self.ids(batch)
        rows = {
            table.name: (np.zeros((1, table.width), np.float32), np.zeros(len(ids[table.name]), np.int32))
            for table in self.tables
        }
        values = self.variables(self._initial)
        predictions = self.step.predict(batch.spec, batch.features, values, self._tensors(NOTHING, rows))
        if isinstance(predictions, Mapping):
            outputs = tuple(map(str, predictions))
        else:
            outputs = tuple(getattr(self.built.model, "output_names", None) or ())
        for metrics in self._probed:
            metrics.probe(batch.labels, predictions, batch.weights, outputs)

    def _pulled(self, dense: Float32Array, rows: TableRows) -> PulledTensors:
        self._check_dense(dense)
        return self._tensors(lend(dense), rows)

    def _summed(self, gradients: list[Any], rows: TableRows) -> tuple[dict[str, Float32Array], RowMagnitudes]:
        """The gradients of each trainable table, and the magnitudes of the rows with several parts."""
        sums: dict[str, Float32Array] = {}
        magnitudes: RowMagnitudes = {}
        for name, gradient in zip(self._trainable, gradients, strict=True):
            if not isinstance(gradient, tuple):
                sums[name] = np.asarray(gradient)
                continue
            parts, places = np.asarray(gradient[0]), np.asarray(gradient[1], np.int32)
            unique = len(rows[name][0])
            if not self._power:
                sums[name] = sum_rows(places, parts, unique)
                continue
            sums[name], repeated, values = sum_parts(places, parts, unique, self._power)
            if repeated.size:
                magnitudes[name] = repeated, values
        return sums, magnitudes

    def _check_dense(self, dense: Float32Array) -> None:
        if dense.shape != (self.dense.size,):
            raise InvariantError(f"the dense vector has shape {dense.shape}, the model needs ({self.dense.size},)")

    def _tensors(self, dense: Any, rows: TableRows) -> PulledTensors:
        pairs = [rows[table.name] for table in self.tables]
        inverses = {id(inverse): inverse for _, inverse in pairs}
        lent = {key: lend(inverse) for key, inverse in inverses.items()}  # Tables that share one share its tensor.
        return PulledTensors(
            dense=dense,
            rows=tuple([lend(unique) for unique, _ in pairs]),
            inverses=tuple([lent[id(inverse)] for _, inverse in pairs]),
        )

    def _problem(self, gradients: Gradients) -> str:
        """What of a step's result is NaN or infinite."""
        if not math.isfinite(loss := float(gradients.loss)):
            return f"the loss is {loss}"
        for spec, value in self.dense.named_statistics(np.asarray(gradients.statistics_update)):
            if not np.isfinite(value).all():
                return f"the layer state {spec.name} becomes NaN or infinite"
        scaled = "" if self._loss_scale is None else f", also with the smallest loss scale of {LOSS_SCALE_MIN:g}"
        return f"a gradient is NaN or infinite{scaled}"

    def _check_overlap(self) -> None:
        if self.synchronizes and not self.step.can_overlap:
            raise UserError(
                f"{self.module.path}: BatchNormalization(synchronized=True) needs steps that can run side by side, "
                "but the training step draws from tf.random, runs Python code (py_function), runs uncompiled or is the "
                "model's own train_step()",
                hint="Draw from keras.random and use TensorFlow operations only, or remove synchronized=True.",
            )

    def _check_weights(self) -> None:
        if self.example.weights is None:
            return
        by_class, by_column = self.module.value(CLASS_WEIGHT) is not None, self.module.default_feed is not None
        gives = f"{CLASS_WEIGHT} gives" if by_class else "a column gives" if by_column else "the feed gives"
        if not self.module.loss_takes(3):
            raise UserError(
                f"{self.module.path}: {gives} sample weights, but loss takes two arguments",
                hint="Define loss(labels, predictions, sample_weight=None).",
            )
        if (by_class or by_column) and not self.module.loss_takes(2):
            raise UserError(
                f"{self.module.path}: evaluations may have no sample weights, but loss needs them",
                hint="Define loss(labels, predictions, sample_weight=None).",
            )

    def _translated(self) -> tuple[Any, TranslatedOptimizer]:
        """The user's optimizer, or the first one of several, and how it is split."""
        own, module, replicated = self.built.own, self.module, self.settings.replicated
        has_several = own is not None and own.has_several
        is_given = own is None or (module.value("optimizer") and not has_several)
        optimizer = module.make_optimizer() if own is None or is_given else own.optimizer
        by_keras = has_several or (replicated and needs_keras(self.built.model))
        with user_code(module.path, "the learning-rate schedule"):
            return optimizer, translate(optimizer, replicated=replicated, by_keras=by_keras)

    def _updater_of(self, optimizer: Any) -> KerasOptimizers:
        """What runs the optimizer, or several ones of which it is the first."""
        with user_code(self.module.path, "the optimizer"):
            updater = KerasOptimizers(trained_by(optimizer, self.dense.trainable, self.built.own), optimizer)
        described = self.optimizer.optimizer.run_by_keras(updater.classes, updater.initial.size)
        self.optimizer = replace(self.optimizer, optimizer=described)
        return updater

    def _check_range(self, name: str, low: int, high: int, input_dim: int) -> None:
        if low < 0 or high >= input_dim:
            raise UserError(
                f"{self.module.path}: id {low if low < 0 else high} is outside embedding {name}, "
                f"which has input_dim={input_dim}",
                hint="Enlarge input_dim, or map the ids (keras.layers.Hashing, StringLookup) before the embedding.",
            )

    def _refuse_averages_of_tables(self) -> None:
        served = [table.name for table in self.tables if table.kind is VariableKind.TRAINABLE]
        if served and EMA_MOMENTUM in self.optimizer.optimizer.hyperparameters:
            raise UserError(
                f"{self.module.path}: use_ema of the optimizer can't be used with the table {served[0]} on the ps: "
                "every update would move the averages of all its rows, not only of those that a batch uses",
                hint="Remove use_ema.",
            )

    def _with_decay(self, table: ServedTable) -> RowTable:
        """What the ps have to know of a table, with what ``exclude_from_weight_decay`` says of it."""
        decays = self.optimizer.decays(self.built.census.named_like_table(table.number))
        return replace(table.spec, weight_decay=decays or table.spec.kind is not VariableKind.TRAINABLE)

    def _describe_decay(self) -> list[str]:
        """What decays, if something is left out: a list of variables can't have a table on the ps."""
        dense = [spec.weight_decay for spec in self.dense.specs if spec.kind is VariableKind.TRAINABLE]
        tables = {one.name: one.weight_decay for one in self.tables if one.kind is VariableKind.TRAINABLE}
        if not self.optimizer.optimizer.hyperparameters.get("weight_decay") or all([*dense, *tables.values()]):
            return []
        decaying = [name for name, decays in tables.items() if decays]
        line = f"weight decay: {sum(dense)} of {len(dense)} dense variables"
        if tables:
            line += f", {len(decaying)} of {len(tables)} tables on the ps"
            line += f" ({', '.join(decaying)})" if decaying else ""
        return [line]
