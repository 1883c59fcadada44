"""``elasticdl run``: a Keras script runs unchanged, and each call of ``fit()`` in it becomes a job.

``runner`` runs the script, ``replacing`` puts our ``fit()`` in the place of Keras', ``fit`` makes a job of a call,
``arrays`` keeps its data, ``continuing`` and ``optimizer_state`` its optimizer, ``launcher`` starts jobs in a process
of its own (``elasticdl.cli.script.fit_job``).
Only ``fit`` and what it uses import Keras, which the script has imported by then.
"""
