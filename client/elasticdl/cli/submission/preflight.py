"""Whether a job can write where it will write and reach whom it will ask, found out before anything is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store

_PROBE = ".elasticdl-can-write"


def check_places(flags: TrainFlags, spec: JobSpec) -> None:
    """Write a probe wherever the job will write and ask its broker; leaves nothing behind.

    Args:
        flags: what was typed.
        spec: the job.

    Raises:
        ElasticDLError: which place can't be used, and why.
    """
    places = {"output": spec.output} if flags.output else {}
    typed = "storage" if flags.storage else "checkpoint_dir" if flags.checkpoint_dir else "run_dir"
    places[typed] = spec.storage
    for flag, uri in places.items():
        _check_writable(f"--{flag}={getattr(flags, flag) or display(uri)}", uri)
    if flags.report:
        check_report(flags.report)
    if flags.nats_url:
        _check_broker(flags.nats_url, spec)


def check_report(report: Path) -> None:
    """Say now whether the report can be written at the end of the job.

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
        problem = f"{path if path.exists() else folder} may not be written to"
    else:
        return
    raise UserError(f"--report={report} can't be written: {problem}", hint="Give the name of a file.", usage=True)


def _check_writable(typed: str, uri: str) -> None:
    store = open_store(uri)
    probe = join(uri, _PROBE)
    try:
        with _folders_removed(probe):
            store.write(probe, b"")
            store.delete(probe)
    except PermanentError as error:
        # What does not exist is the probe, which nobody has asked for.
        problem = "no file can be made there" if isinstance(error, ObjectNotFoundError) else error
        raise UserError(
            f"{typed} can't be written: {problem}",
            hint="Give a folder or bucket that exists, or may be made, and that you may write to.",
        ) from error


@contextmanager
def _folders_removed(uri: str) -> Iterator[None]:
    """Folders of a local file that are made inside of this block are removed after it, unless there is more in them."""
    missing: list[Path] = []
    if uri.startswith("file://"):
        missing = [folder for folder in Path(display(uri)).parents if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for folder in missing:
                folder.rmdir()


def _check_broker(url: str, spec: JobSpec) -> None:
    from elasticdl.shared.bus.nats_bus import check_server  # a tenth of a second, for those who have a broker

    asyncio.run(check_server(url, spec.job))
