"""A job's event log as TensorBoard event files.

``scalars`` is pure: it knows the log and no file. ``event_files`` is the only module that imports the package
``tensorboard``, which is optional.
"""
