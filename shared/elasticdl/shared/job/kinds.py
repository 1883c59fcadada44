"""Job kinds and what is known of each. Other modules ask for these facts, and compare no kinds."""

from __future__ import annotations

from enum import Enum

from elasticdl.shared.names import Purpose


class JobKind(Enum):
    """What a job does: its name, and what follows from it."""

    work: Purpose
    working: str
    done: str

    TRAIN = "train", Purpose.TRAIN, "training", "trained"
    EVALUATE = "evaluate", Purpose.EVALUATE, "evaluating", "evaluated"
    """Evaluates a model once on the validation data. Its training plan is empty."""
    PREDICT = "predict", Purpose.PREDICT, "predicting", "predicted"
    """Writes the predictions of a model for the validation data, which needs no labels. Its training plan is empty."""

    def __new__(cls, name: str, work: Purpose = Purpose.TRAIN, working: str = "", done: str = "") -> JobKind:
        """A kind whose value, on the log and in files, is its name. Type checkers want the defaults for a lookup."""
        kind = object.__new__(cls)
        kind._value_ = name
        kind.work, kind.working, kind.done = work, working, done
        return kind

    @property
    def trains(self) -> bool:
        """Whether it makes a model. Others use one that exists: they have no epochs, callbacks or updates."""
        return self.work is Purpose.TRAIN

    @property
    def name_suffix(self) -> str:
        """Follows the name of the model file in the names of its jobs."""
        return "" if self.trains else f"-{self.value}"
