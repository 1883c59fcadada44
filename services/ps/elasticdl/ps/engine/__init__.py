"""The numeric engine of the parameter server: rows, dense blocks, optimizers, schedules and their cuts.

Everything here is arithmetic on NumPy arrays and answers synchronously. May import numpy, numba,
``elasticdl.shared.model`` and ``elasticdl.shared.errors``. Must not import sockets, asyncio, nats, TensorFlow or a
clock, nor read the environment.
"""
