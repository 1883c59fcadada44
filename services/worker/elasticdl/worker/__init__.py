"""The worker: takes tasks, reads records, computes gradients with Keras, talks to the ps set.

======================================  ===========================================================================
thread                                  does
======================================  ===========================================================================
main (``trainer.py``, ``asides.py``)    computes batch k, pushes it, answers deliveries
reader (``preparer.py``)                takes tasks, reads, feeds, finds ids, up to two batches ahead
pull (``puller.py``)                    pulls for batch k + 1 while batch k is computed
leases, signals, bus                    extend leases, act on SIGTERM, speak to the broker
======================================  ===========================================================================

What comes next is decided by ``pipeline.py``, a value without threads; ``context.py`` is what the threads share.

May import ``elasticdl.shared``; only ``elasticdl.worker.model`` and ``building.py`` import TensorFlow. Must not import
any other service.
"""
