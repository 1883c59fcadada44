"""Snapshots that the parameter servers have registered or found damaged. Pure."""
