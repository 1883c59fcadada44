"""The master: plans tasks, keeps pods running, schedules evaluation, closes the job with an audit.

``core`` is pure: ``evolve(state, record)`` and ``decide(state, now)``. May import ``elasticdl.shared``; must not import
TensorFlow or NumPy, nor any other service.
"""
