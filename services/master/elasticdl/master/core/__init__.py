"""The master's core: a job's state folded from its log, and what to do next. Pure.

``evolve(state, record)`` takes note of one record, ``decide(state, now_s)`` says what should be done now and why,
``fold`` does the first over a whole log. The same functions serve the live master, recovery, replay, inspection and
simulation.

May import ``elasticdl.shared`` values. Must not import asyncio, sockets, clocks, randomness, the environment, NumPy,
TensorFlow or any client library.
"""

from elasticdl.master.core.decide import decide
from elasticdl.master.core.decision import Decision
from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.fold import Fold, fold
from elasticdl.master.core.state import State
from elasticdl.master.core.training.task_messages import task_messages

__all__ = ["Decision", "Fold", "State", "decide", "evolve", "fold", "task_messages"]
