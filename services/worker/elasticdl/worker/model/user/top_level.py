"""While a model file is imported, models in it are neither trained nor evaluated: the job does that."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import keras

from elasticdl.shared.errors import UserError

_METHODS = ("fit", "evaluate", "train_on_batch", "test_on_batch")


@contextmanager
def no_training(path: Path) -> Iterator[None]:
    """Refuse to train a model in this block, with the line of the file that does so.

    Raises:
        UserError: the file calls ``fit()`` or ``evaluate()`` outside of its functions.
    """
    (trainer,) = (kind for kind in keras.Model.__mro__ if "fit" in vars(kind) and "train_step" in vars(kind))
    originals = {name: getattr(trainer, name) for name in _METHODS}

    def refusing(name: str) -> Callable[..., NoReturn]:
        def refused(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise _refusal(path, name)

        return refused

    for name in _METHODS:
        setattr(trainer, name, refusing(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(trainer, name, original)


def _refusal(path: Path, name: str) -> UserError:
    lines = [frame.lineno for frame in traceback.extract_stack() if Path(frame.filename) == path]
    where = f"{path}, line {lines[-1]}" if lines else f"{path}"
    return UserError(
        f"{where} calls {name}(), and a model file only makes the model",
        hint=f"Run the script as it is: elasticdl run {path}. Its fit() becomes the job. Or put these lines "
        'under if __name__ == "__main__":',
    )
