"""The master's core: a job's state, folded from its event log, and what to do next. Pure.

``evolve(state, record)`` applies one record, ``decide(state, now_s)`` returns the commands that are needed now and
their reasons, ``fold`` applies a whole log. The same functions serve the live master, recovery, replay, inspection and
simulation. Other packages read a job through ``elasticdl.views``.

Each capability is a package: ``job``, ``pods``, ``training``, ``evaluation``, ``callbacks``, ``prediction``, ``moves``,
``snapshots`` and ``closing``. ``state.py`` in it holds its part of the state, ``apply.py`` changes it (``on_*`` for
events, ``apply_*`` for the master's own commands), and the other modules decide.

May import ``elasticdl.shared`` values. Must not import asyncio, sockets, clocks, randomness, the environment, NumPy,
TensorFlow or any client library.
"""

from elasticdl.master.core.decide import decide
from elasticdl.master.core.decision import Decision
from elasticdl.master.core.state import State
from elasticdl.master.core.training.task_messages import task_messages

__all__ = ["Decision", "State", "decide", "task_messages"]
