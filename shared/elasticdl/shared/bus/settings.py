"""How a client behaves towards the broker."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.job.spec import LEASE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Settings of one client."""

    lease_s: float = LEASE_S
    """Seconds without a sign of life after which a task is delivered again. The same in all clients of a job."""
    connect_s: float = 10.0
    """Seconds to try the first connection before saying that nobody is there; later ones are tried for ever."""
    absence_is_final: bool = True
    """Whether nobody at the first connection is the user's mistake; otherwise it is an absence for now, and the keeper
    of this process starts it again."""
    answer_s: float = 2.0
    """Seconds to wait for one answer of the broker before asking again."""
    retry_s: float = 300.0
    """Seconds during which a publication is tried again; must be below ``dedupe_window_s``."""
    retry_pause_s: float = 0.25
    """Seconds between two tries."""
    order_answer_s: float = 5.0
    """Seconds to wait for a process to answer an order; the master gives the order again."""
    dedupe_window_s: float = 600.0
    """Seconds during which the broker recognises a repeated publication."""
    heartbeat_s: float = 1.0
    """Seconds between signs of life of an idle subscription; after three missing ones it is made anew."""
    read_batch: int = 500
    """Records asked for at a time when reading the log."""
    publish_window: int = 256
    """Task publications under way at a time."""
    workers_max: int = 4096
    """Workers that may have a task or wait for one; the broker refuses the next."""
    events_bytes_max: int = -1
    """Size of the event log at which the broker refuses more, bytes; -1: the disk's."""
    replicas: int = 1
    """Copies of each stream in a cluster of brokers: 3 survives the loss of a machine."""
    run_directory: str = ""
    """Where the broker keeps its files, if that is known; only for messages about a full disk."""

    def __post_init__(self) -> None:
        if self.retry_s > self.dedupe_window_s:
            raise ValueError("retry_s must not be above dedupe_window_s: a late repetition would not be recognised")
