"""The decisions of a ps about everything but pushes and pulls: start-up, snapshots, moves, retention and orders.

``PsController.handle(event, now_s)`` returns commands; the threads of the shell execute them and report each outcome as
an event. Connection threads call the model's own core (``elasticdl.ps.shard.core``), so no push waits for the
controller.

May import ``elasticdl.ps.shard``, the pure modules of ``elasticdl.ps.snapshots`` and ``elasticdl.ps.moves``, and
``elasticdl.shared``. Must not do I/O, read a clock, start threads or log.
"""

from elasticdl.ps.controller.controller import PsController
from elasticdl.ps.controller.settings import ControllerSettings

__all__ = ["ControllerSettings", "PsController"]
