"""Files of views: exported event logs, also without names, and kept results of folds.

The rules are those of ``elasticdl.views``. A module here writes only the file that it is about.
"""
