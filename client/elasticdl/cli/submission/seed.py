"""The seed of a job whose user gives none."""

from __future__ import annotations

import secrets
from dataclasses import replace

from elasticdl.cli.submission.flags import TrainFlags

_SEED_BITS = 32
"""Random bits of a seed: few enough to be typed."""


def with_seed(flags: TrainFlags) -> TrainFlags:
    """The same flags, with a random seed if none was given."""
    return flags if flags.seed is not None else replace(flags, seed=secrets.randbits(_SEED_BITS))
