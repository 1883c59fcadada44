"""A replica of the model in a worker's process, for jobs with AllreduceStrategy.

A replica is a ps inside of a worker: the same core, engine and snapshots. ``state`` adapts its core to the ring,
``serving`` serves it as ``ps-0`` while this worker leads, ``membership`` talks to the master, and ``servers`` is what
the lanes of the worker see. This is the one package of the worker that imports ``elasticdl.ps`` (ADR 35).
"""
