"""Which models a ring of workers can't train. They are refused by name before the job starts."""

from __future__ import annotations

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import some_of
from elasticdl.worker.model.runner import ModelRunner

_NAMES_SHOWN = 4
_HINT = "Use --distribution_strategy=ParameterServerStrategy"


def check_ring(runner: ModelRunner, *, has_ps: bool) -> None:
    """Refuse a model that a ring can't train.

    Args:
        has_ps: the job has ps for tables.

    Raises:
        UserError: it has tables and no ps, ps and no tables, or layers that are normalised over all batches of an
            update; or Keras runs the optimizer of a model with tables.
    """
    path, signature = runner.module.path, runner.signature()
    tables = some_of([table.name for table in signature.tables], _NAMES_SHOWN)
    if tables and not has_ps:
        raise UserError(
            f"{path}: elasticdl.layers.Embedding keeps its rows on parameter servers, and this job with "
            f"AllreduceStrategy has none ({tables})",
            hint="Use keras.layers.Embedding if every worker has memory for the tables, or --num_ps_pods=1, which "
            "works with --platform=local.",
        )
    if has_ps and not tables:
        raise UserError(
            f"{path}: the model has no tables, so --num_ps_pods has no effect with AllreduceStrategy",
            hint="Leave --num_ps_pods out. Every worker has the whole model.",
        )
    if tables and signature.optimizer.is_keras:
        kind = signature.optimizer.name.removeprefix("keras ")
        raise UserError(
            f"{path}: with AllreduceStrategy, Keras runs {kind} on whole variables, and the rows of {tables} are on "
            "parameter servers",
            hint="Use another optimizer or constraint, or keras.layers.Embedding if every worker has memory for the "
            "tables.",
        )
    if runner.synchronizes:
        raise UserError(
            f"{path}: BatchNormalization(synchronized=True) is not possible with AllreduceStrategy yet",
            hint=f"{_HINT} with --use_async=false, or remove synchronized=True.",
        )
