"""Pods: their state, their failures, and tasks that crash workers. Pure."""
