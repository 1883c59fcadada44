"""The seed of a job whose user gives none."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TypeVar

from elasticdl.shared.job.job_options import JobFlags
from elasticdl.shared.job.kind_options import TrainFlags

F = TypeVar("F", bound=JobFlags)
_SEED_BITS = 32
"""Random bits of a seed: few enough to be typed."""


def with_seed(flags: F) -> F:
    """The same flags, with a random seed if the job trains and none was given."""
    if isinstance(flags, TrainFlags) and flags.seed is None:
        return replace(flags, seed=secrets.randbits(_SEED_BITS))
    return flags


def seed_of(flags: JobFlags) -> int:
    """The seed of a job's processes; 0: the command has none."""
    return (isinstance(flags, TrainFlags) and flags.seed) or 0
