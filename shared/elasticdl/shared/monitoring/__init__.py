"""What Prometheus reads of a process.

``exposition`` writes the text, ``processes`` names what a heartbeat holds, ``metrics_server`` answers requests. Must
not import a service.
"""
