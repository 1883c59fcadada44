"""A job's event log as TensorBoard event files, without the package ``tensorboard``: it needs NumPy.

``scalars`` is pure: it knows the log and no file. ``event_files`` knows their format. ``live`` writes the files of a
running job. ``elasticdl tensorboard`` uses the first two.
"""
