"""Pods: which processes should run, when a failed one is restarted, and which batches crash workers. Pure."""
