"""Failure detection: processes send heartbeats, and a monitor reports those whose heartbeats are missing.

``heartbeats.py`` is the message, ``detector.py`` decides who is suspected (pure), and ``monitor.py`` sends heartbeats,
receives them and asks the detector. The master monitors workers and ps; the launcher monitors the
master and the NATS server.
"""
