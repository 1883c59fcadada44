"""Mutations: each removes one rule of the product, and the simulation has to find the damage.

A simulator that can't find a planted bug proves nothing. ``python -m tests.sim.mutations`` searches for seeds that show
the damage and writes them to ``seeds.py``. This package is the only place where functions of the product are replaced.
To add a mutation, write a function with ``@mutation`` in the module of its capability and run the search.
"""

from tests.sim.mutations import (
    crediting,
    evaluation,
    fencing,
    master_log,
    metric_states,
    missed_updates,
    moves,
    pods,
    prediction,
    ps_controller,
    ps_state,
    queue,
    runs,
    snapshots,
    spares,
    stale_events,
    staleness,
    synchronous,
    worker,
)
from tests.sim.mutations.registry import MUTATIONS, Mutation, Protects

__all__ = [
    "MUTATIONS",
    "Mutation",
    "Protects",
    "crediting",
    "evaluation",
    "fencing",
    "master_log",
    "metric_states",
    "missed_updates",
    "moves",
    "pods",
    "prediction",
    "ps_controller",
    "ps_state",
    "queue",
    "runs",
    "snapshots",
    "spares",
    "stale_events",
    "staleness",
    "synchronous",
    "worker",
]
