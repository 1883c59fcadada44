"""Where the wall time of a job went: ``fold`` charges every second to a cause, ``causes`` says what to do about each.

Pure functions and folds of records; the rules are those of ``elasticdl.views``.
"""
