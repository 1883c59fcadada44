"""Heartbeats: how they are sent, and how a missing one is noticed."""
