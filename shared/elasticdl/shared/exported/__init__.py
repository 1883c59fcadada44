"""Exports whose tables are Parquet files beside the model (ADR 19).

``layout.py``   what such an export consists of; pure
``parquet.py``  which rows of a table's snapshots are its rows, and one file of them
``writing.py``  from snapshots to an export, in bounded memory: rows go through files by the hash of their id
``reading.py``  an export and its rows, a file at a time
``lookup.py``   the rows of a batch, from memory-mapped files
``owner.py``    which job has written the model in an output, of any kind of export

May import numpy, pyarrow, ``elasticdl.shared.model`` and the storage. Must not import TensorFlow. The images of
master and ps have no pyarrow, so neither may import this package.
"""
