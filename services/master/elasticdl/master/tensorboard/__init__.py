"""A job's event log as TensorBoard event files, without the package ``tensorboard``: it needs NumPy.

``elasticdl.views.curves`` finds the points in the log. ``event_files`` knows the format of the files, and ``elasticdl
tensorboard`` uses it too. ``live`` writes the files of a running job.
"""
