"""The callbacks of a call of ``fit()``: which of them a job runs, and what they have learned in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import keras

from elasticdl.shared.errors import ElasticDLError
from elasticdl.worker.model.user.callbacks.accepted import is_tensorboard, with_hooks

_LEFT_OUT = {
    "BackupAndRestore": "snapshots are always taken, and elasticdl run --resume=JOB continues from them",
    "ProgbarLogger": "elasticdl run --progress=fit shows its lines",
}
_OF_THE_JOB = ("restore_best_weights",)
"""Attributes that a job sets for itself."""


def taken(given: Any) -> list[Any]:
    """The callbacks of a call, without those whose work a job does itself; says which."""
    callbacks = []
    for callback in keras.tree.flatten(given or []):
        kind = type(callback)
        if kind.__module__.startswith("keras.") and kind.__name__ in _LEFT_OUT:
            sys.stdout.write(f"The callback {kind.__name__} is left out: {_LEFT_OUT[kind.__name__]}.\n")
        else:
            callbacks.append(callback)
    return callbacks


def restore(callbacks: Sequence[Any], model: Any, storage: str) -> None:
    """Give the callbacks of the script the attributes that they have at the end of a job, as far as these are plain.

    Args:
        storage: URI of the folder in which the job keeps them.
    """
    # With the worker's core, which the start of a job does not wait for.
    from elasticdl.worker.execution.callback_tasks import last_states
    from elasticdl.worker.model.user.callbacks.hooks import load

    try:
        states = last_states(storage)
    except ElasticDLError as error:
        sys.stdout.write(f"The callbacks of fit() do not have what they have learned in the job: {error.args[0]}\n")
        return
    ran = [one for one in callbacks if not isinstance(one, keras.callbacks.TerminateOnNaN) and with_hooks([one])]
    for callback, state in zip(ran, states, strict=False):
        attributes = {} if is_tensorboard(callback) else state["attributes"]
        found = {name: load(value) for name, value in attributes.items() if name not in _OF_THE_JOB}
        vars(callback).update(found, _model=model)
