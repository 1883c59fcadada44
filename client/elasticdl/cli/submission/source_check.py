"""Whether a job's data is still what it was planned with, and indices of it that were lost; for a resume."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.submission.submit import checksum
from elasticdl.shared.data import IndexStore, PlannedData, build_index
from elasticdl.shared.data.discovery import DataObject
from elasticdl.shared.data.index_store import IndexLostError
from elasticdl.shared.data.recorded import options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, display, open_store


def check_data(run: RunDirectory, spec: JobSpec) -> None:
    """Refuse data that is not what was planned; a ledger over other records would say nothing.

    Raises:
        UserError: a source is gone, or changed.
    """
    for plan in (spec.plan, spec.validation):
        for source in plan.sources if plan else ():
            try:
                info = _info(source)
            except ObjectNotFoundError as error:
                raise UserError(f"{display(source.uri)} of job {run.job} is gone", hint="Put it back.") from error
            if (info.size_bytes, info.etag) != (source.size_bytes, source.etag):
                raise _changed(run, source)


def mend_indices(run: RunDirectory, spec: JobSpec, say: Callable[[str], None]) -> None:
    """Read data anew whose index is lost or damaged; the data was checked before, and has to add up to the plan's sum.

    Args:
        run: the job's folder.
        spec: the job.
        say: told what takes time.

    Raises:
        UserError: the data is not what was planned after all.
        TransientError, PermanentError: a store.
    """
    for plan, data in ((spec.plan, spec.data), (spec.validation, spec.validation_data)):
        if plan is not None and data is not None:
            planned, mended = _mended(run, spec.storage, plan, data, say)
            if mended and plan is spec.plan and checksum(plan, planned) != spec.checksum:
                raise _changed(run, mended[0])


def _mended(
    run: RunDirectory, storage: str, plan: Plan, data: DataSpec, say: Callable[[str], None]
) -> tuple[PlannedData, list[Source]]:
    """A data set with all of its indices, and the sources that were read anew."""
    options, schema = options_of(data), schema_of(data)
    saved = IndexStore.of_job(storage)
    indices, mended = [], []
    for number, source in enumerate(plan.sources):
        try:
            index = saved.load(source, number, options)
        except IndexLostError as error:
            say(f"{error}; it is made anew")
            found = DataObject(info=_info(source), format=schema.format)
            index = build_index(open_store(source.uri), found, number, options)
            if index.source != source:
                raise _changed(run, source) from error
            saved.save(index, options)
            mended.append(source)
        indices.append(index)
    return PlannedData(plan.sources, schema, tuple(indices)), mended


def _info(source: Source) -> ObjectInfo:
    return open_store(source.uri).info(source.uri)


def _changed(run: RunDirectory, source: Source) -> UserError:
    how = (
        "Compared are size, modification time and inode: move the old file back (mv), or copy it over this one with "
        "its times (cp -p)"
        if source.uri.startswith("file://")
        else "Compared are size and ETag: put the old object back"
    )
    return UserError(
        f"{display(source.uri)} changed since job {run.job} was planned",
        hint=f"{how}; or train anew with: elasticdl train",
    )
