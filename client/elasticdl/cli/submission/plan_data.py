"""Plans the data of a job: from the flags to sources, types and indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.cli.local.processes.fork_server import ForkServers
from elasticdl.cli.submission.flag_items import reader_options
from elasticdl.shared.data import PlannedData, broken_link, plan_sources
from elasticdl.shared.data.discovery import left_out, split_paths
from elasticdl.shared.data.formats.csv_file import delimiter_hint
from elasticdl.shared.data.planning import Scan
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import PATH_FLAGS
from elasticdl.shared.job.kind_options import TrainedModelFlags, TrainFlags
from elasticdl.shared.job.model_file import READER, find_reader, takes_columns
from elasticdl.shared.job.spec import ModelSpec
from elasticdl.shared.storage import open_store
from elasticdl.shared.words import similar, some_of
from elasticdl.zoo import example_data

Progress = Callable[[str], None]
_LINES_MAX = 16
"""Columns up to which each has a line of its own."""
_COLUMNS_SHOWN = 6


def reader_function(flags: TrainFlags | TrainedModelFlags, model: ModelSpec) -> str:
    """The function of the model file that reads the data; empty: the data is in files.

    Raises:
        UserError: a flag names a function that the file does not define, or is for one.
    """
    function = find_reader(model.file, flags.custom_data_reader)
    if flags.data_reader_params and not function:
        raise UserError(f"--data_reader_params has no effect, because {model.path} defines no {READER}", usage=True)
    return function


def plan_data(
    flags: TrainFlags | TrainedModelFlags,
    model: ModelSpec,
    progress: Progress,
    forks: ForkServers | None = None,
    shared_folder: str = "",
    scan: Scan = scan_in_parallel,
) -> tuple[PlannedData, PlannedData | None]:
    """Read and index the data: that of training and the validation data if there is any, or the data to predict.

    Args:
        flags: the values of the flags. ``custom_data_reader`` is the result of ``reader_function``.
        scan: indexes files.

    Raises:
        UserError: the data is missing, damaged, or not as the flags say; names the file, and if possible the record.
        UnfinishedError: a process that reads the data crashed.
    """
    if flags.custom_data_reader:
        planned = _plan_custom(flags, model, progress, forks)
    else:
        planned = _plan_files(flags, model, progress, shared_folder, scan)
    return planned[0], planned[1] if len(planned) > 1 else None


def _plan_files(
    flags: TrainFlags | TrainedModelFlags, model: ModelSpec, progress: Progress, shared_folder: str, scan: Scan
) -> list[PlannedData]:
    options = reader_options(flags)
    raw_lines = not takes_columns(model.file)
    planned: list[PlannedData] = []
    for flag in PATH_FLAGS:
        paths = getattr(flags, flag, "")
        if not paths:
            continue
        for path in split_paths(paths):
            _check_exists(path, flag, model)
        progress(f"Reading {paths}")
        schema = planned[0].schema if planned else None
        planned.append(
            plan_sources(
                paths,
                options,
                open_store(split_paths(paths)[0]),
                schema=schema,
                raw_lines=raw_lines,
                scan=scan,
                shared_folder=shared_folder,
            )
        )
        if reused := _reused_line(planned[-1]):
            progress(reused)
        for line in left_out_lines(paths, planned[-1]):
            progress(line)
        if schema is None:
            _show_columns(planned[0], progress)
    return planned


def _reused_line(data: PlannedData) -> str:
    """How many files were read, if the index of another job has the others; empty: all were."""
    files, reused = len(data.sources), data.reused
    if not reused:
        return ""
    if reused == files:
        return "No file has changed since another job indexed them. Using its index."
    return f"Read {files - reused:,} of {files:,} files. Using the index of another job for the other {reused:,}."


def _plan_custom(
    flags: TrainFlags | TrainedModelFlags, model: ModelSpec, progress: Progress, forks: ForkServers | None
) -> list[PlannedData]:
    from elasticdl.cli.local.custom_reader import plan_custom_data  # Jobs that read files need not wait for it.

    origins = tuple(paths for flag in PATH_FLAGS if (paths := getattr(flags, flag, "")))
    progress(f"Reading {' and '.join(origins)} with {flags.custom_data_reader}() of {model.path}")
    planned = plan_custom_data(flags, model, origins, progress, forks)
    _show_columns(planned[0], progress)
    return planned


def _show_columns(data: PlannedData, progress: Progress) -> None:
    for line in column_lines(data):
        progress(line)


def left_out_lines(paths: str, data: PlannedData) -> Iterator[str]:
    """What a person may take for data that is not read; the first and the last file show partitions."""
    names = data.schema.metadata.column_names
    return left_out(paths, [data.sources[0].uri, data.sources[-1].uri], names) if names else iter(())


def column_lines(data: PlannedData) -> Iterator[str]:
    """The columns and their types: ``id: int64``, ``day: int64 (was date32, days)``; many columns by type."""
    columns = data.schema.columns
    if len(columns) == 1 and (hint := delimiter_hint(columns[0].name, data.schema.csv_delimiter)):
        yield f"There is only one column. {hint}"
    names: dict[str, list[str]] = {}
    for column in columns:
        remark = f" ({data.remarks[column.name]})" if column.name in data.remarks else ""
        names.setdefault(f"{column.type}{remark}", []).append(column.name)
    if columns:
        yield "Columns:"
    if len(columns) <= _LINES_MAX:
        kinds = {name: kind for kind, own in names.items() for name in own}
        yield from (f"  {column.name}: {kinds[column.name]}" for column in columns)
        return
    for kind, own in names.items():
        yield f"  {some_of(own, _COLUMNS_SHOWN)}: {kind}"


def _check_exists(path: str, flag: str, model: ModelSpec) -> None:
    """Refuse a local path that does not exist; suggest a similar name, or the command that writes the example data."""
    if "://" in path or re.search(r"[*?\[]", path):
        return
    local = Path(path).expanduser()
    if local.exists():
        return
    if local.is_symlink():
        raise broken_link(local)
    siblings = [entry.name for entry in local.parent.iterdir()] if local.parent.is_dir() else []
    near = similar(local.name, siblings)
    example = example_data(Path(model.path).stem)
    if near:
        hint = f"Did you mean {local.parent / near}?"
    elif example:
        hint = f"To write the example data there: elasticdl zoo data {example} {local.parent}"
    elif local.parent.is_dir():
        hint = f"The folder {local.parent} exists; check the name after it."
    else:
        hint = f"{local.parent} does not exist either."
    raise UserError(f"--{flag}={path} does not exist", hint=hint, usage=True)
