"""Recovers a job from its snapshots alone: its spec, its placement, and what each ps restores. No log, no register."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from elasticdl.shared.bus.ports import KeyValue, KeyValueEntry
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import FencedError, UnreadableError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import LostLog
from elasticdl.shared.messages.registers import PsRegister, decode_register, encode_register
from elasticdl.shared.model.manifests import (
    MANIFEST_NAME,
    DamagedError,
    Manifest,
    manifest_uris,
    read_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.placement import PARTITIONS, Placement, decode_placement, encode_placement
from elasticdl.shared.model.stored_spec import read_spec_of
from elasticdl.shared.names import NOBODY, SERVED_REPLICA, JobId, PodName, Service, pod_name, pod_number
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore

_Found = tuple[str, Manifest]
_TRIES_MAX = 5
"""How often a register is written again after another process has just written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredJob:
    """A job, as far as its snapshots contain it.

    Attributes:
        spec: the job, with as many ps as the snapshots are of.
        registers: by ps, a register that names its best snapshots; no incarnation owns it.
        placement: the placement of these snapshots; version 1: no group has ever moved.
    """

    spec: JobSpec
    registers: Mapping[PodName, PsRegister]
    placement: Placement


def recover_job(store: ObjectStore, storage: str, job: JobId, known: JobSpec | None = None) -> RecoveredJob | None:
    """Read a job's snapshots; None: none of them can be read.

    Of each ps the snapshot with the most batches counts, whether it was registered or not: in each snapshot weights and
    ledger are of one moment, so training can continue from each. Only manifests are verified here; the ps verifies the
    other objects and falls back to the next snapshot.

    Args:
        known: its specification; None: it is read from the snapshots too.

    Raises:
        DamagedError: there are snapshots, but none of them says what the job is.
    """
    found = list(_manifests(store, storage, job))
    if not found:
        return None
    of_ps: dict[PodName, list[_Found]] = {}
    for uri, manifest in found:
        of_ps.setdefault(manifest.ps, []).append((uri, manifest))
    newest = [max(snapshots, key=_order)[1] for snapshots in of_ps.values()]
    spec = known or _spec(store, found)
    return RecoveredJob(
        spec=spec,
        registers={ps: _register(snapshots) for ps, snapshots in sorted(of_ps.items())},
        placement=_placement(spec, newest),
    )


def has_snapshots(store: ObjectStore, storage: str, job: JobId) -> bool:
    """Whether ``recover_job`` would find anything; arguments and errors as there."""
    return next(_manifests(store, storage, job), None) is not None


async def settle_placement(
    registers: KeyValue,
    store: ObjectStore,
    spec: JobSpec,
    recovered: RecoveredJob | None,
    lost: LostLog | None,
    now_s: float,
) -> Placement | None:
    """Publish the placement of the snapshots, if a part of the log is lost and groups had moved.

    The lost part may have published later versions, so the new version is numbered by the clock. All registers are
    replaced, because they may be from before a move.

    Args:
        recovered: what was found there, if the caller knows it already.
        lost: the part of the log that is gone; None: nothing.

    Returns:
        The placement; None: the log contains it.

    Raises:
        FencedError: another process writes the registers.
    """
    if lost is None:
        return None
    recovered = recovered or await asyncio.to_thread(recover_job, store, spec.storage, spec.job, spec)
    found = recovered.placement if recovered else Placement.first_of(spec)
    if found.version == 1 and await registers.read(PLACEMENT) is None:
        return None
    placement = replace(found, version=max(found.version + 1, int(now_s)))
    for ps, register in recovered.registers.items() if recovered else ():
        await _write(registers, ps, encode_register(register))
    await _write(registers, PLACEMENT, encode_placement(placement))
    return placement


async def _write(registers: KeyValue, name: str, value: bytes) -> None:
    for attempt in range(1, _TRIES_MAX + 1):
        entry = await registers.read(name)
        try:
            await registers.write(name, value, after=entry.seq if entry else 0)
            return
        except FencedError:  # A late write of a former incarnation.
            if attempt == _TRIES_MAX:
                raise


async def restore_registers(
    registers: KeyValue, store: ObjectStore, spec: JobSpec, recovered: RecoveredJob | None
) -> None:
    """Make the register of every ps name an existing snapshot, if there is one; good registers are left alone.

    Call it when no process of the job is alive. The new entry fences any process that is left after all.
    """
    for number in range(spec.ps):
        ps = pod_name(Service.PS, number)
        for attempt in range(1, _TRIES_MAX + 1):
            entry = await registers.read(ps)
            former = _readable(entry) or PsRegister(address="", incarnation=NOBODY)
            if await asyncio.to_thread(_names_something, store, former):
                break
            recovered = recovered or await asyncio.to_thread(recover_job, store, spec.storage, spec.job, spec)
            if recovered is None or ps not in recovered.registers:
                break
            try:
                await registers.write(ps, encode_register(recovered.registers[ps]), after=entry.seq if entry else 0)
                break
            except FencedError:  # A late write of a former incarnation.
                if attempt == _TRIES_MAX:
                    raise


async def restore_placement(registers: KeyValue, placement: Placement) -> None:
    """Publish the placement of the log again if the published one can't be read.

    Call it when no process of the job is alive.
    """
    entry = await registers.read(PLACEMENT)
    if entry is None:
        return
    try:
        decode_placement(entry.value)
    except UnreadableError:
        await _write(registers, PLACEMENT, encode_placement(placement))


def _readable(entry: KeyValueEntry | None) -> PsRegister | None:
    try:
        return decode_register(entry.value) if entry else None
    except UnreadableError:
        return None


def _names_something(store: ObjectStore, register: PsRegister) -> bool:
    for uri in (register.manifest, *register.older):
        if uri:
            try:
                store.info(uri)
            except ObjectNotFoundError:
                continue
            return True
    return False


def _manifests(store: ObjectStore, storage: str, job: JobId) -> Iterator[_Found]:
    for uri in manifest_uris(store, snapshots_folder(storage, job), MANIFEST_NAME):
        try:
            yield uri, read_manifest(store, uri)
        except DamagedError:
            continue  # If it was registered, its ps reports it.


def _spec(store: ObjectStore, found: list[_Found]) -> JobSpec:
    """The job by its newest snapshot or, if the object that this one refers to is damaged, by the next older one."""
    first: DamagedError | None = None
    damaged: set[str] = set()
    for uri, manifest in sorted(found, key=_order, reverse=True):
        if manifest.spec_digest in damaged:
            continue
        try:
            return read_spec_of(store, uri, manifest)
        except DamagedError as error:
            first = first or error
            damaged.add(manifest.spec_digest)
    assert first is not None
    raise first


def _placement(spec: JobSpec, newest: list[Manifest]) -> Placement:
    """Who has what, by the newest snapshot of each ps; of two that have a partition, by the later version."""
    version = max(manifest.placement_version for manifest in newest)
    owners = list(Placement.first_of(spec).owners)
    since = [0] * PARTITIONS
    for manifest in sorted(newest, key=lambda one: one.ps):
        if spec.has_tables_beside_ring and manifest.ps == SERVED_REPLICA:
            continue  # It has no tables, which the placement is of.
        for group in manifest.groups:
            known = group.move or manifest.placement_version
            for start, end in group.partitions if known <= version else ():
                for partition in range(start, end):
                    if known > since[partition]:
                        since[partition] = known
                        owners[partition] = pod_number(manifest.ps)
    return Placement(version=version, owners=tuple(owners))


def _order(found: _Found) -> tuple[int, int, str, int]:
    manifest = found[1]
    return manifest.placement_version, manifest.step, manifest.incarnation, manifest.number


def _register(snapshots: list[_Found]) -> PsRegister:
    newest_first = sorted(snapshots, key=_order, reverse=True)
    uri, manifest = newest_first[0]
    return PsRegister(
        address="",
        incarnation=NOBODY,
        manifest=uri,
        step=manifest.step,
        older=tuple(older for older, _ in newest_first[1:]),
    )
