"""How a call of ``fit()`` continues the optimizer of the call before it, whose state is in that job's snapshots."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import keras
from xxhash import xxh3_64

from elasticdl.shared.job.spec import Strategy
from elasticdl.shipping.own_steps import optimizers_of

_last: WeakKeyDictionary[Any, tuple[str, str]] = WeakKeyDictionary()
"""Optimizer -> the last job that trained with it, and a digest of the weights that it left."""


def note(model: Any, job: str) -> None:
    """Note which job has trained a model; the model has the job's weights."""
    _last[model.optimizer] = job, _digest(model)


def has_ring(flags: Any) -> bool:
    """Whether the job of ``ScriptFlags`` has replicas of the model in a ring of workers."""
    strategy: str = getattr(flags, "distribution_strategy", "")
    return strategy == Strategy.ALLREDUCE.value


def flags_to_continue(model: Any) -> dict[str, Any]:
    """The flags of a job that continues the optimizer; none if there is nothing to continue.

    The weights come with the state. So if the script has changed them since, the optimizer starts from scratch.
    """
    job, digest = _last.get(model.optimizer, ("", ""))
    continues = job and any(map(_has_state, optimizers_of(model))) and digest == _digest(model)
    return {"initial_model": job, "initial_optimizer": True} if continues else {}


def reason_to_restart(model: Any) -> str:
    """Why an optimizer that has made updates starts from scratch; empty: it continues, or has nothing to continue."""
    job, digest = _last.get(model.optimizer, ("", ""))
    if not any(map(_has_state, optimizers_of(model))):
        return ""
    if not job:
        is_used = any(int(_read(one.iterations)) > 0 for one in optimizers_of(model))
        return "its state is from load_model() or from training in the script, and not from a job" if is_used else ""
    return f"the script has changed weights since job {job}" if digest != _digest(model) else ""


def _has_state(optimizer: Any) -> bool:
    """Whether an update depends on those before it."""
    is_plain = type(optimizer) is keras.optimizers.SGD and not optimizer.momentum and not optimizer.use_ema
    return not is_plain or isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule)


def _digest(model: Any) -> str:
    digest = xxh3_64()
    for weight in model.weights:
        digest.update(weight.path.encode())
        digest.update(_read(weight).tobytes())
    return digest.hexdigest()


def _read(variable: Any) -> Any:
    """The value of a variable, which may be one of a ``tf.distribute.Strategy``."""
    return keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(variable.value))
