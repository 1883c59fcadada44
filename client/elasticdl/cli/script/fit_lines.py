"""The progress of a job in Keras' own lines: the script has imported Keras, which the launcher must not wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from elasticdl.cli.script.fit_progress import Facts


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

    def show(self, facts: Facts) -> None:
        """Show the progress, one epoch after the other."""
        steps = facts["steps"]
        for logs in facts["epochs"][self._ended :]:
            self._begin(steps)
            self._logger.on_epoch_end(self._ended, logs)
            self._ended += 1
            self._begun = False
        batches = min(facts["batches"] - self._ended * steps, steps)
        if batches > 0:
            self._begin(steps)
            loss = {} if facts["loss"] is None else {"loss": facts["loss"]}
            self._logger.on_train_batch_end(batches - 1, loss)

    def _begin(self, steps: int) -> None:
        if self._begun:
            return
        self._begun = True
        self._logger.set_params({"verbose": self._given["verbose"], "epochs": self._given["epochs"], "steps": steps})
        self._logger.on_train_begin()
        self._logger.on_epoch_begin(self._given["initial_epoch"] + self._ended)
