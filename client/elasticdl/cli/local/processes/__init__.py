"""Child processes of the launcher: what they are started with, how they are started and watched, what they print.

May import ``elasticdl.shared``, ``elasticdl.cli.jobs``, psutil and the standard library. Knows nothing of jobs' states.
"""
