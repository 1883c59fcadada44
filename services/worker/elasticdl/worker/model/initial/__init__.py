"""The weights that a job's model starts from: read from files of Keras, matched by name, and written for the ps.

Runs in the model check, before any ps. Must not know the job beyond its ``InitialModel`` and its storage.
"""
