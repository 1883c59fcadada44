"""Core snapshots: the master's folded state, saved so that a successor does not replay the whole event log."""
