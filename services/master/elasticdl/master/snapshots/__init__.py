"""Core snapshots: the master's folded state, saved so that a successor need not replay the whole event log."""
