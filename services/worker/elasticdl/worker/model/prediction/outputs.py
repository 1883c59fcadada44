"""A model's outputs as a prediction job writes them, after the processor of the model file, if it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.runner import ModelRunner, TableRows
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule

DEFAULT_PROCESSOR = "PredictionOutputsProcessor"


@dataclass(slots=True, kw_only=True)
class ModelOutputs:
    """Computes the outputs of batches.

    Attributes:
        runner: the model.
        processor: an instance of the user's class; None: there is none.
        worker: number of this worker, which the processor is given.
    """

    runner: ModelRunner
    processor: Any = None
    worker: int = 0
    _variables: tuple[Float32Array, tuple[Any, ...]] | None = None
    """The dense vector, and its variables as tensors: they do not change, and each batch needs them."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs of a model that gives a list of them; empty if they have none."""
        return tuple(getattr(self.runner.built.model, "output_names", None) or ())

    def outputs(self, batch: Batch, dense: Float32Array, rows: TableRows) -> Any:
        """The outputs of a batch as arrays, in the structure that the model gives, or what the processor returns.

        Args:
            batch: from a ``predict`` feeder.
            dense: float32, all dense variables in signature order.
            rows: pulled rows of the batch's ids.

        Raises:
            UserCodeError: the user's code raised.
        """
        if self._variables is None or self._variables[0] is not dense:
            self._variables = dense, self.runner.variables(dense)
        predictions = self.runner.predict(batch, self._variables[1], rows)
        if self.processor is None:
            return predictions
        with user_code(self.runner.module.path, f"{type(self.processor).__name__}.process()"):
            processed = self.processor.process(predictions, self.worker)
        return predictions if processed is None else processed


def load_processor(module: UserModule, name: str) -> Any:
    """An instance of the processor's class.

    Args:
        module: the model file.
        name: of the class; empty: ``PredictionOutputsProcessor``, if the file defines it.

    Returns:
        None: there is none.

    Raises:
        UserError: there is no such class, or it has no method ``process``.
        UserCodeError: its constructor raised.
    """
    kind = module.function(name or DEFAULT_PROCESSOR)
    if kind is None and not name:
        return None
    if kind is None or not callable(getattr(kind, "process", None)):
        problem = "defines no class" if kind is None else "has no method process() in"
        raise UserError(
            f"{module.path} {problem} {name or DEFAULT_PROCESSOR}",
            hint="The class needs a method process(predictions, worker_id).",
        )
    with user_code(module.path, f"{name or DEFAULT_PROCESSOR}()"):
        return kind()
