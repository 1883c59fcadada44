"""The options of ``elasticdl run``: those of ``train`` that the call of ``fit()`` does not say."""

from __future__ import annotations

import dataclasses
from typing import Any

from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.options import hints_of

_TAKEN = (
    "num_workers", "num_ps_pods", "platform", "distribution_strategy", "use_async", "grads_to_wait", "lr_scaling",
    "max_staleness", "lr_staleness_modulation", "num_minibatches_per_task", "prefetch_batches", "batch_deadline_secs",
    "seed", "storage", "checkpoint_steps", "tensorboard_log_dir", "envs", "nats_url", "run_dir", "job_name",
    "log_level", "debug", "deterministic", "ring_precision", "replica_check_steps", "spare_workers",
)  # fmt: skip


def _fields() -> list[Any]:
    hints = hints_of(TrainFlags)
    defaults = {field.name: field.default for field in dataclasses.fields(TrainFlags)}
    return [(name, hints[name], dataclasses.field(default=defaults[name])) for name in _TAKEN]


ScriptFlags: Any = dataclasses.make_dataclass("ScriptFlags", _fields(), frozen=True, slots=True, kw_only=True)
"""Values of the options of ``elasticdl run``; each field is the flag of ``train`` of the same name."""
