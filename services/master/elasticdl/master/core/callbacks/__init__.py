"""Callbacks: when the hooks of an epoch are due, and what follows from their results. Pure."""
