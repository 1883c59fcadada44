"""Checks before a resume or an export: model file and data are those that the job was planned with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.submission.submit import checksum
from elasticdl.shared.data import IndexStore, PlannedData
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.data.indices import IndexLostError, pack
from elasticdl.shared.data.schema import options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_digest import changed_files, file_digests
from elasticdl.shared.job.plan import Plan, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display, for_each, open_store

Progress = Callable[[str], None]
_NOT_COMPARED = (
    "was copied, touched or changed. It has the same size and number of records. "
    "Without its index, the job can't compare its content and uses it as it is."
)


def check_model_files(run: RunDirectory, record: JobRecord) -> None:
    """Refuse a model file that is not the one that the job was planned with."""
    if changed := changed_model_files(run, record):
        raise UserError(
            f"{changed} changed since job {run.job} was planned",
            hint="Undo the change, or train the new model with: elasticdl train",
        )


def changed_model_files(run: RunDirectory, record: JobRecord) -> str:
    """The model file and modules beside it that changed since the job was planned, for people; empty if none did."""
    path = Path(record.model.rpartition(":")[0])
    if not record.model_files:
        return ""
    if not path.is_file():
        raise UserError(
            f"the model file {path} of job {run.job} does not exist any more",
            hint="Restore it, or start a new job with: elasticdl train",
        )
    return ", ".join(str(path.parent / name) for name in changed_files(record.model_files, file_digests(path)))


def check_data(spec: JobSpec, progress: Progress) -> None:
    """Refuse data that is not the data that the job was planned with, and rebuild lost or damaged indices.

    A file that was only copied or touched is the same. Data that the model file reads, and files in folders, are
    compared when workers read them.

    Args:
        progress: is called with a line for each data set whose indices are rebuilt, and for each source that is read.
    """
    if spec.data.reader or FORMATS[spec.data.format].records_are_files:
        _check_indices(spec)
        return
    _check_sizes(spec)
    _check_contents(spec, progress, accepted=_rebuild_indices(spec, progress))


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
        try:
            IndexStore.of_job(spec.storage, plan.sources, options_of(data)).load_all().check()
        except IndexLostError as error:
            kind = "data that the model file reads" if spec.data.reader else FORMATS[data.format].title
            raise UserError(
                f"{error}. An index of {kind} can't be rebuilt.",
                hint="Restore it, resume the job with the version of ElasticDL that started it, or start a new job: "
                "elasticdl train",
            ) from error


def _rebuild_indices(spec: JobSpec, progress: Progress) -> list[Plan]:
    """Rebuild indices that are lost or damaged. The checksum of the rebuilt training data has to be the plan's.

    Returns:
        The plans whose data could not be compared, because only that of training has a checksum.
    """
    accepted = []
    for plan, data in _data_sets(spec):
        saved = IndexStore.of_job(spec.storage, plan.sources, options_of(data))
        try:
            saved.load_all().check()
        except IndexLostError as error:
            progress(f"{error}. Rebuilding it.")
            indices = _index(spec.job, plan, data)
            if plan is spec.plan:
                if checksum(plan, _as_it_is(indices, data)) != spec.checksum:
                    raise _changed_one(spec.job, plan, indices) from error
            else:
                accepted.append(plan)
                for source, index in zip(plan.sources, indices, strict=True):
                    if index.source.etag != source.etag:
                        progress(f"{display(source.uri)} {_NOT_COMPARED}")
            pairs = zip(indices, plan.sources, strict=True)
            saved.save(pack(replace(index, source=source) for index, source in pairs))
    return accepted


def _check_contents(spec: JobSpec, progress: Progress, accepted: Sequence[Plan]) -> None:
    """Refuse data with other content, except of the accepted plans; its indices are there."""
    for plan, data in _data_sets(spec):
        if any(plan is each for each in accepted):
            continue
        saved = IndexStore.of_job(spec.storage, plan.sources, options_of(data))
        infos = for_each(plan.sources, partial(_info, _store_of(plan), data=data))
        for number, (source, now) in enumerate(zip(plan.sources, infos, strict=True)):
            if now.etag == source.etag:
                continue
            progress(f"{display(source.uri)} was copied, touched or changed. Comparing its content.")
            if not saved.is_same(number, data, now):
                raise _changed(spec.job, source)


def _data_sets(spec: JobSpec) -> list[tuple[Plan, DataSpec]]:
    sets = [(spec.plan, spec.data)] if spec.plan.sources else []  # A prediction job trains on nothing.
    if spec.validation is not None:
        sets.append((spec.validation, spec.validation_data or spec.data))
    return sets


def _as_it_is(indices: Sequence[SourceIndex], data: DataSpec) -> PlannedData:
    """The data as it was indexed now, so that it can be read."""
    return PlannedData(
        sources=Source.sequence_of(index.source for index in indices),
        schema=schema_of(data),
        indices=indices,
        options=options_of(data),
        remarks={},
    )


def _index(job: JobId, plan: Plan, data: DataSpec) -> Sequence[SourceIndex]:
    """The indices of the data as it is, with its present etags."""
    store = _store_of(plan)
    infos = for_each(plan.sources, partial(_info, store, data=data))
    found = [DataObject(info=info, format=data.format) for info in infos]
    scanned = scan_in_parallel(store, found, options_of(data))

    def unchanged() -> Iterator[SourceIndex]:
        for each, source in zip(scanned, plan.sources, strict=True):
            if each.index.source.records != source.records:
                raise _changed(job, source)
            yield each.index

    return pack(unchanged())


def _store_of(plan: Plan) -> ObjectStore:
    """The store of all sources of a plan: connections to it are used again."""
    return open_store(plan.sources[0].uri if plan.sources else "file:///")


def _info(store: ObjectStore, source: Source, data: DataSpec) -> ObjectInfo:
    return FORMATS[data.format].info(store, source)


def _changed_one(job: JobId, plan: Plan, now: Sequence[SourceIndex]) -> UserError:
    """The error for data with another checksum: it names a file that has another etag, if there is one."""
    etags = zip(plan.sources, now, strict=True)
    return _changed(job, next((old for old, new in etags if old.etag != new.source.etag), plan.sources[0]))


def _changed(job: JobId, source: Source) -> UserError:
    return UserError(
        f"{display(source.uri)} changed since job {job} was planned",
        hint="Restore the old content, or start a new job with: elasticdl train",
    )
