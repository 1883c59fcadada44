"""From columns of a result to features of a model: which are used, how, and with which fitted parameters.

``profile`` knows types and statistics, ``derivation`` decides by them, ``functions`` reads COLUMN clauses, ``fitting``
asks the training rows for parameters, ``prepared`` turns rows into what the model's inputs take, and ``features`` is
what is saved with the model. May import ``elasticdl.sql.statements`` and ``elasticdl.sql.snapshot``; must not import
TensorFlow, Keras or jobs.
"""
