"""Checks before a resume: the data is the data that the job was planned with, and its indices are complete."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.submission.submit import checksum
from elasticdl.shared.data import IndexStore, PlannedData, scan_source
from elasticdl.shared.data.discovery import DataObject
from elasticdl.shared.data.index_store import IndexLostError
from elasticdl.shared.data.schema import options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, display, open_store


def check_sources(run: RunDirectory, spec: JobSpec) -> None:
    """Refuse data that changed since the job was planned: the ledgers count records of the old data.

    Raises:
        UserError: a source is missing or changed.
    """
    for plan in (spec.plan, spec.validation):
        for source in plan.sources if plan else ():
            try:
                info = _info(source)
            except ObjectNotFoundError as error:
                raise UserError(
                    f"{display(source.uri)}, a data source of job {run.job}, does not exist any more",
                    hint="Restore it, then resume.",
                ) from error
            if (info.size_bytes, info.etag) != (source.size_bytes, source.etag):
                raise _changed(run, source)


def rebuild_indices(run: RunDirectory, spec: JobSpec, progress: Callable[[str], None]) -> None:
    """Rebuild indices that are lost or damaged. The checksum of the rebuilt data has to be the plan's.

    Call ``check_sources`` first.

    Args:
        run: the job's folder.
        spec: the job.
        progress: is called with a line for each index that is rebuilt.

    Raises:
        UserError: the data is not the data that the job was planned with.
        TransientError, PermanentError: the storage.
    """
    for plan, data in ((spec.plan, spec.data), (spec.validation, spec.validation_data)):
        if plan is not None and data is not None:
            planned, rebuilt = _indexed(run, spec.storage, plan, data, progress)
            if rebuilt and plan is spec.plan and checksum(plan, planned) != spec.checksum:
                raise _changed(run, rebuilt[0])


def _indexed(
    run: RunDirectory, storage: str, plan: Plan, data: DataSpec, progress: Callable[[str], None]
) -> tuple[PlannedData, list[Source]]:
    """A data set with all of its indices, and the sources whose index was rebuilt."""
    options, schema = options_of(data), schema_of(data)
    saved = IndexStore.of_job(storage)
    indices, rebuilt = [], []
    for number, source in enumerate(plan.sources):
        try:
            index = saved.load(source, number, options)
        except IndexLostError as error:
            progress(f"{error}. Rebuilding it.")
            found = DataObject(info=_info(source), format=schema.format)
            index = scan_source(open_store(source.uri), found, number, options).index
            if index.source != source:
                raise _changed(run, source) from error
            saved.save(index, options)
            rebuilt.append(source)
        indices.append(index)
    planned = PlannedData(sources=plan.sources, schema=schema, indices=tuple(indices), options=options, remarks={})
    return planned, rebuilt


def _info(source: Source) -> ObjectInfo:
    return open_store(source.uri).info(source.uri)


def _changed(run: RunDirectory, source: Source) -> UserError:
    how = (
        "A local file counts as unchanged if size, modification time and inode are the same. Move the old file back "
        "(mv), or copy it over this one with its times (cp -p)"
        if source.uri.startswith("file://")
        else "An object counts as unchanged if size and ETag are the same. Restore the old object"
    )
    return UserError(
        f"{display(source.uri)} changed since job {run.job} was planned",
        hint=f"{how}; or start a new job with: elasticdl train",
    )
