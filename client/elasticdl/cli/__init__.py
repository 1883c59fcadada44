"""The command line and the local launcher.

``main`` is the application, ``submit`` turns flags into a job, ``launcher`` keeps a local job's processes, ``live`` and
``report`` show what the log says. Above every service in the layers: inspection folds a log with the master's own core.

May import typer, rich, psutil and ``elasticdl.*``. Must not import TensorFlow, nor numpy, pyarrow or nats before a
command needs them: ``elasticdl --help`` answers at once.
"""
