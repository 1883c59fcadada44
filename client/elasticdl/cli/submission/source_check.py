"""Checks before a resume or an export: model file and data are those that the job was planned with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.submission.model_digest import changed_files, file_digests
from elasticdl.cli.submission.submit import checksum
from elasticdl.shared.data import IndexStore, PlannedData, scan_source
from elasticdl.shared.data.discovery import DataObject, source_info
from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.data.index_store import IndexLostError
from elasticdl.shared.data.schema import DataFormat, options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, display, open_store

Progress = Callable[[str], None]
_KIND = {False: "data that the model file reads", True: "images in folders"}


def check_model_files(run: RunDirectory, record: JobRecord) -> None:
    """Refuse a model file that is not the one that the job was planned with.

    Raises:
        UserError: names the file that is missing or changed.
    """
    path = Path(record.model.rpartition(":")[0])
    if not record.model_files:
        return
    if not path.is_file():
        raise UserError(
            f"the model file {path} of job {run.job} does not exist any more",
            hint="Restore it, or start a new job with: elasticdl train",
        )
    changed = changed_files(record.model_files, file_digests(path))
    if changed:
        names = ", ".join(str(path.parent / name) for name in changed)
        raise UserError(
            f"{names} changed since job {run.job} was planned",
            hint="Undo the change, or train the new model with: elasticdl train",
        )


def check_data(spec: JobSpec, progress: Progress) -> None:
    """Refuse data that is not the data that the job was planned with, and rebuild lost or damaged indices.

    A file that was only copied or touched is the same. Data that the model file reads, and images in folders, are
    compared when workers read them.

    Args:
        spec: the job.
        progress: is called with a line for each index that is rebuilt, and for each source that is read.

    Raises:
        UserError: names the source that is missing or changed.
        TransientError, PermanentError: the storage.
    """
    if spec.data.reader or spec.data.format == DataFormat.IMAGES.value:
        _check_indices(spec)
        return
    _check_sizes(spec)
    _rebuild_indices(spec, progress)
    _check_contents(spec, progress)


def _check_sizes(spec: JobSpec) -> None:
    """Refuse data of another size: the ledgers count records of the old data."""
    for plan, data in _data_sets(spec):
        for source in plan.sources:
            try:
                info = _info(source, data)
            except ObjectNotFoundError as error:
                raise UserError(
                    f"{display(source.uri)}, a data source of job {spec.job}, does not exist any more",
                    hint="Restore it, then try again.",
                ) from error
            if info.size_bytes != source.size_bytes:
                raise _changed(spec.job, source)


def _check_indices(spec: JobSpec) -> None:
    """Refuse a job without the indices of data that workers compare record by record."""
    for plan, data in _data_sets(spec):
        for number, source in enumerate(plan.sources):
            try:
                IndexStore.of_job(spec.storage).load(source, number, options_of(data))
            except IndexLostError as error:
                raise UserError(
                    f"{error}. An index of {_KIND[spec.data.reader is None]} can't be rebuilt.",
                    hint="Restore it, or start a new job with: elasticdl train",
                ) from error


def _rebuild_indices(spec: JobSpec, progress: Progress) -> None:
    """Rebuild indices that are lost or damaged. The checksum of the rebuilt data has to be the plan's."""
    for plan, data in _data_sets(spec):
        saved, options = IndexStore.of_job(spec.storage), options_of(data)
        indices, rebuilt = [], []
        for number, source in enumerate(plan.sources):
            try:
                indices.append(saved.load(source, number, options))
            except IndexLostError as error:
                progress(f"{error}. Rebuilding it.")
                # Only the training data has a checksum that shows whether the content is the same.
                rebuilt.append(_index(spec.job, source, number, data, can_verify=plan is spec.plan))
                indices.append(rebuilt[-1])
        if rebuilt and plan is spec.plan and checksum(plan, _as_it_is(indices, data)) != spec.checksum:
            raise _changed(spec.job, rebuilt[0].source)
        for index in rebuilt:
            saved.save(index, options)


def _check_contents(spec: JobSpec, progress: Progress) -> None:
    """Refuse data with other content; its indices are there."""
    for plan, data in _data_sets(spec):
        saved = IndexStore.of_job(spec.storage)
        for number, source in enumerate(plan.sources):
            now = _info(source, data)
            if now.etag == source.etag:
                continue
            progress(f"{display(source.uri)} was copied, touched or changed. Comparing its content.")
            if not saved.is_same(source, number, data, now):
                raise _changed(spec.job, source)


def _data_sets(spec: JobSpec) -> list[tuple[Plan, DataSpec]]:
    sets = [(spec.plan, spec.data)]
    if spec.validation is not None:
        sets.append((spec.validation, spec.validation_data or spec.data))
    return sets


def _as_it_is(indices: Sequence[SourceIndex], data: DataSpec) -> PlannedData:
    """The data with its present etags, so that it can be read."""
    present = [replace(index, source=replace(index.source, etag=_info(index.source, data).etag)) for index in indices]
    return PlannedData(
        sources=tuple(index.source for index in present),
        schema=schema_of(data),
        indices=tuple(present),
        options=options_of(data),
        remarks={},
    )


def _index(job: JobId, source: Source, number: int, data: DataSpec, *, can_verify: bool) -> SourceIndex:
    info = _info(source, data)
    found = DataObject(info=info, format=schema_of(data).format)
    index = scan_source(open_store(source.uri), found, number, options_of(data)).index
    if index.source.records != source.records or (info.etag != source.etag and not can_verify):
        raise _changed(job, source)
    return replace(index, source=source)


def _info(source: Source, data: DataSpec) -> ObjectInfo:
    return source_info(open_store(source.uri), source.uri, DataFormat(data.format))


def _changed(job: JobId, source: Source) -> UserError:
    return UserError(
        f"{display(source.uri)} changed since job {job} was planned",
        hint="Restore the old content, or start a new job with: elasticdl train",
    )
