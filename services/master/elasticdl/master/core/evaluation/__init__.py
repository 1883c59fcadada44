"""Evaluation: what triggers one, how it pins the model, and how its metric states are merged. Pure."""
