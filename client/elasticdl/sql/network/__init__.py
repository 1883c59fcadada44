"""The network of a statement's model: Keras layers from saved features, and the networks that a statement can name.

``catalogue`` lists the networks and their arguments without importing Keras. Everything else is imported by the
generated model file, in workers. May import ``elasticdl.sql.columns.features`` and ``building``; must not import
databases, statements or jobs.
"""
