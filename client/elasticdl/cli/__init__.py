"""The command line and the local launcher.

``main`` holds the commands, ``options`` renders their options. ``submission`` turns flags into a job,
``local`` runs it, ``display`` shows it, ``jobs`` finds its folder and its event log, ``commands`` does the rest. The
command line is above all services in the layers: to inspect a job it folds the event log with the master's own core.

May import typer, rich, psutil and ``elasticdl.*``. Must not import TensorFlow, and must import numpy, pyarrow and nats
only when a command needs them: ``elasticdl --help`` has to answer at once.
"""
