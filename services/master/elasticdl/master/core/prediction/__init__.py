"""Prediction: which tasks have predictions, and which file of each task counts. Pure."""
