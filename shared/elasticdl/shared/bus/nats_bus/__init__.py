"""The bus on NATS JetStream; the only package that imports nats, and where its errors become ours.

Uses JetStream's JSON interface over the client's plain requests: every request is repeated until it is answered, which
the client's own JetStream layer leaves to its callers.
"""

import sys

_WEBSOCKETS = "aiohttp"
# The client imports it if it is installed, for a transport that this package does not use; that takes 0.25 s of every
# process's start. A module that is None counts as not installed.
_unwanted = _WEBSOCKETS not in sys.modules
if _unwanted:
    sys.modules[_WEBSOCKETS] = None  # type: ignore[assignment]
try:
    from elasticdl.shared.bus.nats_bus.bus import NatsBus, check_server, connect
    from elasticdl.shared.bus.nats_bus.stored_jobs import StoredLog, remove_job, stored_jobs, stored_logs
finally:
    if _unwanted:
        del sys.modules[_WEBSOCKETS]

__all__ = ["NatsBus", "StoredLog", "check_server", "connect", "remove_job", "stored_jobs", "stored_logs"]
