"""Failure detection: processes send heartbeats, and a monitor reports those whose heartbeats are missing.

``heartbeats.py`` is the message, ``heartbeat_loop.py`` sends it, ``detector.py`` decides who is suspected (pure), and
``monitor.py`` receives heartbeats and asks the detector. The master monitors workers and ps; the launcher monitors the
master and the NATS server.
"""
