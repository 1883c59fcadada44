"""``elasticdl data put``: upload a data set."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from elasticdl.shared.data import put
from elasticdl.shared.storage import display, open_store


def upload(source: Path, destination: str) -> None:
    """Copy a local file or folder into object storage, telling of each object.

    Raises:
        UserError: there is nothing to copy, or the destination refuses.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    written = put(
        source,
        destination,
        open_store(destination),
        progress=lambda info: console.print(f"{display(info.uri)}  {info.size_bytes:,} bytes"),
    )
    console.print(f"{len(written)} objects, {sum(info.size_bytes for info in written):,} bytes")
