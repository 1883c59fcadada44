"""The parameter server: tables, dense blocks, optimizers, ledgers, snapshots.

May import ``elasticdl.shared``, numpy and numba. Must not import TensorFlow or any other service.
"""
