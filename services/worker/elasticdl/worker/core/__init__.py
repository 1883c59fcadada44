"""The worker's decisions: ``WorkerCore.handle(event, now_s)`` returns commands; threads or the simulator execute them.

======================  ===============================================================================================
module                  decides
======================  ===============================================================================================
``pipelining.py``       which operations of which batches may overlap: read, pull, compute, push
``training.py``         what the result of an operation means for its batch and its task
``batch_order.py``      which batch of which task comes next, and which refs are void
``tasks``               how many tasks are taken at once, which deliveries are leased and for how long, and what is
                        published and acknowledged when a task ends, in which order
``auxiliary_tasks.py``  evaluation, merging of metric states and export, between two training batches
``core.py``             start, taking tasks, stop and failure of the worker
======================  ===============================================================================================

Tensors, weights and gradients never pass through the core: commands and events name a batch by its ``BatchRef``.

May import ``elasticdl.shared`` and the pure modules of ``elasticdl.worker``. Must not import threads, sockets, clocks,
logging, randomness or TensorFlow.
"""

from elasticdl.worker.core.batch_order import BatchRef
from elasticdl.worker.core.core import WorkerCore
from elasticdl.worker.core.pipelining import PipelineSettings
from elasticdl.worker.core.settings import CoreSettings

__all__ = ["BatchRef", "CoreSettings", "PipelineSettings", "WorkerCore"]
