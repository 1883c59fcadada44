"""Which models a ring of workers can't train. They are refused by name before the job starts."""

from __future__ import annotations

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import some_of
from elasticdl.worker.model.runner import ModelRunner

_NAMES_SHOWN = 4
_HINT = "Use --distribution_strategy=ParameterServerStrategy"


def check_ring(runner: ModelRunner) -> None:
    """Refuse a model that needs parameter servers.

    Raises:
        UserError: it has tables, or layers that are normalised over all batches of an update.
    """
    path, tables = runner.module.path, [table.name for table in runner.signature().tables]
    if tables:
        raise UserError(
            f"{path}: elasticdl.layers.Embedding keeps its rows on parameter servers, and AllreduceStrategy has none "
            f"({some_of(tables, _NAMES_SHOWN)})",
            hint=f"{_HINT}, or keras.layers.Embedding if the tables fit into the memory of every worker.",
        )
    if runner.synchronizes:
        raise UserError(
            f"{path}: BatchNormalization(synchronized=True) is not possible with AllreduceStrategy yet",
            hint=f"{_HINT} with --use_async=false, or remove synchronized=True.",
        )
