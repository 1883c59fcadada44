"""Files of predictions: columns, formats, and names that only the files that count ever get.

May import NumPy, pyarrow and the storage. Must not know of ps, queues or TensorFlow.
"""
