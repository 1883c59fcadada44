"""Checks before a job starts: destinations can be written and are apart from the data, and the NATS server answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elasticdl.cli.jobs.run_directory import DISK_BYTES_MIN, JobRecord, RunDirectory
from elasticdl.shared.data.discovery import split_paths, would_find
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.job.job_options import PATH_FLAGS
from elasticdl.shared.job.kind_options import TrainedModelFlags, TrainFlags
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store, to_uri

_PROBE = ".elasticdl-can-write"


def check_destinations(
    flags: TrainFlags | TrainedModelFlags,
    run: RunDirectory | None,
    *,
    output: str,
    storage: str,
    tensorboard_log_dir: str = "",
) -> None:
    """Write and delete a small file in each destination of a job, and connect to its NATS server.

    Args:
        run: its folder, which need not exist; None: it has none.
        output: URI of the folder for the exported model; empty: no export.
        storage: URI of the folder for snapshots.
        tensorboard_log_dir: URI of the folder for TensorBoard's event files; empty: none.
    """
    destinations = {"run_dir": to_uri(run.path)} if run else {}
    if output:
        destinations["output"] = output
    if tensorboard_log_dir:
        destinations["tensorboard_log_dir"] = tensorboard_log_dir
    for flag in ("storage", "checkpoint_dir"):
        if getattr(flags, flag):
            destinations[flag] = storage
    data = data_paths(flags)
    names = {flag: f"--{flag}={getattr(flags, flag) or display(uri)}" for flag, uri in destinations.items()}
    if flags.report:
        check_report(flags.report)
        check_apart(f"--report={flags.report}", to_uri(flags.report), data)
    for flag, uri in destinations.items():
        check_apart(names[flag], join(uri, "file"), data)
    for flag, uri in destinations.items():
        check_writable(names[flag], uri)
    if run is None:
        return
    if problem := run.disk_problem(DISK_BYTES_MIN):
        raise UserError(problem, hint="Free some space there, or give a folder on another disk with --run_dir.")
    if flags.nats_url:
        _check_nats_server(flags.nats_url, run.job)


def data_paths(job: TrainFlags | TrainedModelFlags | JobRecord) -> list[str]:
    """The paths of a job's data; none if the model file reads the data."""
    if job.custom_data_reader:
        return []
    given = (getattr(job, flag, "") for flag in PATH_FLAGS)
    return [path for paths in given if paths for path in split_paths(paths)]


def check_apart(what: str, file: str, data: Iterable[str]) -> None:
    """Check that a file that will be written is not found as data, by this job or by the next one."""
    for path in data:
        if would_find(path, file):
            raise UserError(
                f"{what} is inside the data {path}, so it would be read as data",
                hint="Choose a place outside of the data, or give the data as a glob, such as 'folder/*.csv'.",
                usage=True,
            )


def check_report(report: Path) -> None:
    """Check that the report can be written when the job ends. Unlike folders for data, its folder has to exist."""
    path = report.expanduser().absolute()
    folder = path.parent
    if path.is_dir():
        problem = "it is a folder"
    elif not folder.is_dir():
        problem = f"{folder} is not a folder" if folder.exists() else f"the folder {folder} does not exist"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = f"no permission to write to {path if path.exists() else folder}"
    else:
        return
    raise UserError(
        f"--report={report} can't be written: {problem}",
        hint="Give the name of a file in an existing folder.",
        usage=True,
    )


def check_writable(what: str, uri: str) -> None:
    """Write and delete a small file."""
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
