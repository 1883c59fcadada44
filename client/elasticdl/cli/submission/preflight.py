"""Checks before a job starts: every destination can be written, and the NATS server answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store

_PROBE = ".elasticdl-can-write"


def check_destinations(flags: TrainFlags, job: JobId, *, output: str, storage: str) -> None:
    """Write and delete a small file in each destination of a job, and connect to its NATS server.

    Args:
        flags: the values of the flags.
        job: its id.
        output: URI of the folder for the exported model; empty: no export.
        storage: URI of the folder for snapshots.

    Raises:
        ElasticDLError: names the destination that can't be used, and the reason.
    """
    destinations = {"output": output} if output else {}
    flag_of_storage = "storage" if flags.storage else "checkpoint_dir" if flags.checkpoint_dir else "run_dir"
    destinations[flag_of_storage] = storage
    for flag, uri in destinations.items():
        check_writable(f"--{flag}={getattr(flags, flag) or display(uri)}", uri)
    if flags.report:
        check_report(flags.report)
    if flags.nats_url:
        _check_nats_server(flags.nats_url, job)


def check_report(report: Path) -> None:
    """Check that the report can be written when the job ends.

    Raises:
        UserError: it can't.
    """
    path = report.expanduser().absolute()
    folder = next(parent for parent in path.parents if parent.exists())
    if path.is_dir():
        problem = "it is a folder"
    elif not folder.is_dir():
        problem = f"{folder} is not a folder"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = f"no permission to write to {path if path.exists() else folder}"
    else:
        return
    raise UserError(f"--report={report} can't be written: {problem}", hint="Give the name of a file.", usage=True)


def check_writable(what: str, uri: str) -> None:
    """Write and delete a small file.

    Args:
        what: the destination, for the message.
        uri: the destination, a folder.

    Raises:
        UserError: the destination can't be written, and the reason.
    """
    store = open_store(uri)
    probe = join(uri, _PROBE)
    try:
        with _missing_folders_removed(probe):
            store.write(probe, b"")
            store.delete(probe)
    except TransientError as error:
        raise UserError(
            f"{what} can't be written: {str(error).replace(probe, uri)}",
            hint="Check the address, and that the storage can be reached from here.",
        ) from error
    except PermanentError as error:
        # The missing object is our own probe, which the user never named.
        problem = "no file can be created there" if isinstance(error, ObjectNotFoundError) else error
        raise UserError(
            f"{what} can't be written: {problem}",
            hint="Give a folder or bucket that you may write to. A missing folder is created.",
        ) from error


@contextmanager
def _missing_folders_removed(uri: str) -> Iterator[None]:
    """Remove the folders of a local file that the block creates, unless they hold other files."""
    missing: list[Path] = []
    if uri.startswith("file://"):
        missing = [folder for folder in Path(display(uri)).parents if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for folder in missing:
                folder.rmdir()


def _check_nats_server(url: str, job: JobId) -> None:
    from elasticdl.shared.bus.nats_bus import check_server  # The import takes 0.1 s; only this check needs it.

    asyncio.run(check_server(url, job))
