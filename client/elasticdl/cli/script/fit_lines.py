"""The progress of a job in Keras' own lines: the script has imported Keras, which the launcher must not wait for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from elasticdl.cli.script.fit_progress import Facts

_RATE = "learning_rate"


class FitLines:
    """Keras' lines of a call of ``fit()``.

    Args:
        given: the arguments of the call, by their names.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._logger = keras.callbacks.ProgbarLogger()
        self._given = given
        self._ended = 0
        self._begun = False
        self._since_s: float | None = None
        """When the epoch began: the end of the one before, or the first facts."""

    def show(self, facts: Facts) -> None:
        """Show the progress, one epoch after the other."""
        steps, now_s = facts["steps"], time.time()
        if self._since_s is None:
            self._since_s = now_s
        ended = facts["epochs"]
        for logs in ended:
            self._begin(steps)
            # Several short epochs may end between two messages; each shows its share of the time.
            self._started(now_s - (now_s - self._since_s) / len(ended))
            self._logger.on_epoch_end(self._ended, shown(logs, self._given))
            self._ended += 1
            self._begun = False
        if ended:
            self._since_s = now_s
        batches = min(facts["batches"] - self._ended * steps, steps)
        if batches > 0:
            self._begin(steps)
            self._started(self._since_s)
            loss = {} if facts["loss"] is None else {"loss": facts["loss"]}
            self._logger.on_train_batch_end(batches - 1, loss)

    def _begin(self, steps: int) -> None:
        if self._begun:
            return
        self._begun = True
        self._logger.set_params({"verbose": self._given["verbose"], "epochs": self._given["epochs"], "steps": steps})
        self._logger.on_train_begin()
        self._logger.on_epoch_begin(self._given["initial_epoch"] + self._ended)

    def _started(self, start_s: float) -> None:
        """Let the line of this epoch count its seconds from then on."""
        if self._logger.progbar is not None:
            self._logger.progbar._start = start_s
            self._logger.progbar._time_after_first_step = None


def shown(logs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The logs of an epoch as ``fit()`` gives them: in its order, with the rate if one of its callbacks notes it."""
    names = sorted(name for name in logs if name != _RATE)
    rate = {_RATE: logs[_RATE]} if has_rate(given) and _RATE in logs else {}
    return {name: logs[name] for name in names} | rate


def has_rate(given: Mapping[str, Any]) -> bool:
    """Whether one of Keras' callbacks notes the learning rate in the ``History``."""
    kinds = (keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler)
    return any(isinstance(callback, kinds) for callback in keras.tree.flatten(given["callbacks"] or []))
