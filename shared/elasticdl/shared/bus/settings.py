"""Settings of a client of the broker: timeouts, retries and limits."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.job.spec import LEASE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Settings of one client."""

    lease_s: float = LEASE_S
    """Seconds after which a task is delivered again unless its lease is renewed. The same in all clients of a job."""
    connect_s: float = 10.0
    """Seconds to try the first connection before it fails; a lost connection is retried without limit."""
    absence_is_final: bool = True
    """Whether a failed first connection is the user's mistake; otherwise it counts as a temporary outage, and this
    process exits to be restarted."""
    answer_s: float = 2.0
    """Seconds to wait for one answer of NATS before the request is repeated."""
    retry_s: float = 300.0
    """Seconds during which a publication is retried; must be below ``dedupe_window_s``."""
    retry_pause_s: float = 0.25
    """Seconds between two retries."""
    order_answer_s: float = 5.0
    """Seconds to wait for a process to answer an order; the master repeats the order."""
    dedupe_window_s: float = 600.0
    """Seconds during which the broker recognises a repeated publication."""
    heartbeat_s: float = 1.0
    """Seconds between heartbeats of an idle subscription; after three missed ones it is created again."""
    read_batch: int = 500
    """Records requested at a time when reading the log."""
    read_interval_s: float = 0.0
    """Seconds between two requests for new records once all are read, for readers that only show them: to receive each
    record as it arrives costs ten times as much. 0: they arrive at once."""
    gather_s: float = 0.0
    """Seconds between two requests of a busy reader, for readers that handle many records better at once. One that is
    not busy gets each record as it arrives. 0: they always arrive at once."""
    leases_max: int = 4096
    """Tasks that may be leased at a time, and workers that may wait for one; NATS delivers no more."""
    part_bytes_max: int = 512 << 10
    """Largest part of a core snapshot, bytes: brokers limit messages, usually to 1 MiB."""
    events_bytes_max: int = -1
    """Largest size of the event log, bytes; -1: limited by the disk."""
    replicas: int = 1
    """Copies of each stream in a cluster of brokers: 3 survives the loss of a machine."""
    run_directory: str = ""
    """Folder of the NATS server's files, if known; only for messages about a full disk."""

    def __post_init__(self) -> None:
        if self.retry_s > self.dedupe_window_s:
            raise ValueError("retry_s must not be above dedupe_window_s: a late repetition would not be recognised")
