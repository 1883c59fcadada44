"""The termination message of a container: what ``kubectl describe`` shows of its end."""

from __future__ import annotations

from pathlib import Path

TERMINATION_MESSAGE = "/dev/termination-log"
MESSAGE_BYTES_MAX = 4096
"""The most that Kubernetes keeps."""


def write_message(text: str, *, keeps_end: bool = False, path: Path = Path(TERMINATION_MESSAGE)) -> None:
    """Write the message of this container; of a longer one the beginning, or the end."""
    data = text.encode()
    kept = data[-MESSAGE_BYTES_MAX:] if keeps_end else data[:MESSAGE_BYTES_MAX]
    path.write_text(kept.decode(errors="ignore"))
