"""The master: dispatches tasks, restarts pods, triggers evaluations, moves partitions, and audits the finished job.

``core`` decides and is pure: ``evolve(state, record)`` and ``decide(state, now_s)``. ``service.py`` is its shell,
``outbox.py`` runs its commands. May import ``elasticdl.shared`` and ``elasticdl.views``; ``core`` only
``elasticdl.shared``. Must not import TensorFlow, NumPy or other services.
"""
