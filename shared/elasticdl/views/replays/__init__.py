"""What pages about a job need besides the views that commands print: copies of folds, marks over time, comparisons.

May import ``elasticdl.views``, ``elasticdl.shared`` and the master's core. Must not know pages or the command line.
"""
