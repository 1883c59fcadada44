"""What changed between two points of a log, and how a job would have continued from one: folds of its log.

Pure functions; the rules are those of ``elasticdl.views``.
"""
