"""Checks before a resume or an export: model file and data are those that the job was planned with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.submission.model_digest import changed_files, file_digests
from elasticdl.cli.submission.submit import checksum
from elasticdl.shared.data import IndexStore, PlannedData, scan_source
from elasticdl.shared.data.discovery import DataObject, source_info
from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.data.index_store import IndexLostError
from elasticdl.shared.data.schema import DataFormat, ReaderOptions, options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display, for_each, open_store

Progress = Callable[[str], None]
_Saved = SourceIndex | IndexLostError


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

    def check(source: Source, store: ObjectStore, data: DataSpec) -> None:
        try:
            info = _info(store, source, data)
        except ObjectNotFoundError as error:
            raise UserError(
                f"{display(source.uri)}, a data source of job {spec.job}, does not exist any more",
                hint="Restore it, then try again.",
            ) from error
        if info.size_bytes != source.size_bytes:
            raise _changed(spec.job, source)

    for plan, data in _data_sets(spec):
        for _ in for_each(plan.sources, partial(check, store=_store_of(plan), data=data)):
            pass


def _check_indices(spec: JobSpec) -> None:
    """Refuse a job without the indices of data that workers compare record by record."""
    for plan, data in _data_sets(spec):
        for number, source in enumerate(plan.sources):
            try:
                IndexStore.of_job(spec.storage).load(source, number, options_of(data))
            except IndexLostError as error:
                kind = "data that the model file reads" if spec.data.reader else "images in folders"
                raise UserError(
                    f"{error}. An index of {kind} can't be rebuilt.",
                    hint="Restore it, or start a new job with: elasticdl train",
                ) from error


def _rebuild_indices(spec: JobSpec, progress: Progress) -> None:
    """Rebuild indices that are lost or damaged. The checksum of the rebuilt data has to be the plan's."""
    for plan, data in _data_sets(spec):
        saved, options = IndexStore.of_job(spec.storage), options_of(data)
        indices, rebuilt = [], []

        def load(number: int, plan: Plan = plan, saved: IndexStore = saved, options: ReaderOptions = options) -> _Saved:
            try:
                return saved.load(plan.sources[number], number, options)
            except IndexLostError as error:
                return error

        for number, found in enumerate(for_each(range(len(plan.sources)), load)):
            if isinstance(found, IndexLostError):
                progress(f"{found}. Rebuilding it.")
                # Only the training data has a checksum that shows whether the content is the same.
                rebuilt.append(_index(spec.job, plan.sources[number], number, data, can_verify=plan is spec.plan))
                indices.append(rebuilt[-1])
            else:
                indices.append(found)
        if rebuilt and plan is spec.plan and checksum(plan, _as_it_is(indices, data)) != spec.checksum:
            raise _changed(spec.job, rebuilt[0].source)
        for index in rebuilt:
            saved.save(index, options)


def _check_contents(spec: JobSpec, progress: Progress) -> None:
    """Refuse data with other content; its indices are there."""
    for plan, data in _data_sets(spec):
        saved = IndexStore.of_job(spec.storage)
        infos = for_each(plan.sources, partial(_info, _store_of(plan), data=data))
        for number, (source, now) in enumerate(zip(plan.sources, infos, strict=True)):
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
    store = open_store(indices[0].source.uri)
    infos = [_info(store, index.source, data) for index in indices]
    present = [
        replace(index, source=replace(index.source, etag=info.etag)) for index, info in zip(indices, infos, strict=True)
    ]
    return PlannedData(
        sources=tuple(index.source for index in present),
        schema=schema_of(data),
        indices=tuple(present),
        options=options_of(data),
        remarks={},
    )


def _index(job: JobId, source: Source, number: int, data: DataSpec, *, can_verify: bool) -> SourceIndex:
    store = open_store(source.uri)
    info = _info(store, source, data)
    found = DataObject(info=info, format=schema_of(data).format)
    index = scan_source(store, found, number, options_of(data)).index
    if index.source.records != source.records or (info.etag != source.etag and not can_verify):
        raise _changed(job, source)
    return replace(index, source=source)


def _store_of(plan: Plan) -> ObjectStore:
    """The store of all sources of a plan: connections to it are used again."""
    return open_store(plan.sources[0].uri if plan.sources else "file:///")


def _info(store: ObjectStore, source: Source, data: DataSpec) -> ObjectInfo:
    return source_info(store, source.uri, DataFormat(data.format))


def _changed(job: JobId, source: Source) -> UserError:
    return UserError(
        f"{display(source.uri)} changed since job {job} was planned",
        hint="Restore the old content, or start a new job with: elasticdl train",
    )
