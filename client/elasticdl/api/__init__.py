"""The Python API, for notebooks and scripts: jobs are started and watched as by the command ``elasticdl``.

    from elasticdl.api import train

    job = train("model.py", "mnist/train", validation_data="mnist/test", num_epochs=3, output="output")
    job.history.to_pandas()

Each function runs the command of the same name in a process of its own, so a notebook that has imported TensorFlow, or
runs an event loop, does not disturb it. May import ``elasticdl.cli`` for the names of flags, and ``elasticdl.shared``.
"""

from elasticdl.api.history import History
from elasticdl.api.job import Job
from elasticdl.api.starting import evaluate, predict, train
from elasticdl.shared.errors import ElasticDLError, UserError

__all__ = ["ElasticDLError", "History", "Job", "UserError", "evaluate", "predict", "train"]
