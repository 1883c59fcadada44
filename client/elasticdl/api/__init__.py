"""The Python API, for notebooks and scripts: jobs are started and watched as by the command ``elasticdl``.

    from elasticdl.api import train

    job = train("model.py", "mnist/train", validation_data="mnist/test", num_epochs=3, output="output")
    job.history.to_pandas()

``sql`` runs statements, and ``%load_ext elasticdl.api`` makes ``%%sql`` cells of a notebook run them.

Each function runs the command of the same name in a process of its own, so a notebook that has imported TensorFlow, or
runs an event loop, does not disturb it. ``sql`` does so for the jobs of its statements. May import ``elasticdl.cli``,
``elasticdl.sql`` and ``elasticdl.shared``.
"""

from elasticdl.api.job import History, Job
from elasticdl.api.starting import evaluate, predict, train
from elasticdl.api.statements import load_ipython_extension, sql
from elasticdl.cli.script.replacing import note_datasets
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.sql.results import Result

note_datasets()  # The workers of train(model, dataset) read files and windows by number, and nothing is copied.

__all__ = [
    "ElasticDLError",
    "History",
    "Job",
    "Result",
    "UserError",
    "evaluate",
    "load_ipython_extension",
    "predict",
    "sql",
    "train",
]
