"""From columns of a result to features of a model: which are used, how, and with which fitted parameters.

``derivation`` decides by types and statistics, ``functions`` reads COLUMN clauses, ``fitting`` asks the snapshot for
parameters, ``inputs`` turns rows into what the model's inputs take, ``features`` is what is saved with the model. May import
``elasticdl.sql.statements`` and ``elasticdl.sql.snapshot``; must not import TensorFlow, Keras or jobs.
"""
