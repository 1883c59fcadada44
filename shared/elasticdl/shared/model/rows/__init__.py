"""The rows of tables, wherever they are: on a ps, in snapshots, in exports.

``initial_rows.py``    an untrained row, from seed, table and id
``zero_gradients.py``  what each optimizer does to a weight whose gradient is zero
``missed_updates.py``  many such updates at once
``timeline.py``        the updates that were made, and their learning rates
``snapshot_rows.py``   the rows in the chunks of snapshots
``saved_rows.py``      what these rows are at the moment of the snapshot
"""
