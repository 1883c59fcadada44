"""Embedding layers whose tables the ps serve: the swap, lookups in pulled rows, and initializers."""
