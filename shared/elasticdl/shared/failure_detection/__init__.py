"""Failure detection: processes send heartbeats, and a monitor reports those whose heartbeats are missing."""
