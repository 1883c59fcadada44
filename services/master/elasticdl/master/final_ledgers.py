"""The audit's evidence: ledgers as they stand in a snapshot's manifest, not as anybody remembers them."""

from __future__ import annotations

from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.storage import open_store


def read_ledgers(manifest: str) -> tuple[GroupLedger, ...]:
    """Read the ledgers of every group in a snapshot.

    Args:
        manifest: URI of the snapshot's manifest.

    Raises:
        TransientError: the store is away.
        PermanentError: the manifest is gone or damaged.
    """
    return read_manifest(open_store(manifest), manifest).ledgers
