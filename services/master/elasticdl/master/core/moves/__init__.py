"""Moves: partitions of the model move from one parameter server to another when their number changes. Pure."""
