"""The bus on NATS JetStream; the only package that imports nats, and where its errors become ours.

Speaks JetStream's JSON interface over the client's plain requests: every question is asked again until it is answered,
which the client's own JetStream layer leaves to its callers.
"""

from elasticdl.shared.bus.nats_bus.bus import NatsBus, connect

__all__ = ["NatsBus", "connect"]
