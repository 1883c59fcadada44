"""The reader that the model file defines: ``custom_data_reader(data_origin, **params)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from elasticdl.shared.data.custom import CheckedReader
from elasticdl.shared.job.model_file import literal_params
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule

_TASK_RECORDS = "records_per_task"
"""Parameter of readers that were written for ElasticDL's first command line. It is passed to functions that name it."""


def reader_of(module: UserModule, spec: ReaderSpec) -> CheckedReader:
    """The reader of a data set."""
    function = module.required(spec.function)
    arguments: dict[str, object] = {"data_origin": spec.origin, **literal_params(spec.params)}
    if _takes(function, _TASK_RECORDS):
        arguments.setdefault(_TASK_RECORDS, spec.records_per_task)

    def make() -> object:
        with user_code(module.path, f"{spec.function}()"):
            return function(**arguments)

    guard = partial(user_code, module.path)
    return CheckedReader(make, function=spec.function, path=module.path, guard=guard)


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # Python can't tell for some built-in callables.
        return False
