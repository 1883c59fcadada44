"""What the snapshots alone tell of a job: its specification, and what to restore each ps from. No log, no register."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from elasticdl.cli.jobs.run_directory import LogEnd
from elasticdl.shared.bus.ports import KeyValue
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import FencedError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import decode_spec
from elasticdl.shared.messages.events import LogRecord, LostLog
from elasticdl.shared.messages.registers import PsRegister, decode_register, encode_register
from elasticdl.shared.model.manifests import (
    MANIFEST_NAME,
    DamagedError,
    Manifest,
    manifest_uris,
    read_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.placement import PARTITIONS, Placement, encode_placement
from elasticdl.shared.names import NOBODY, JobId, PodName, Service, pod_name, pod_number
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore

_Found = tuple[str, Manifest]
_TRIES_MAX = 5
"""Times that a register is written although somebody else has just done so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """A job as its snapshots tell it.

    Attributes:
        spec: the job, with as many ps as the snapshots are of.
        registers: ps -> what its register has to say, so that it restores its best snapshot; nobody owns the names.
        placement: what these snapshots are of; version 1: no group has ever moved.
    """

    spec: JobSpec
    registers: Mapping[PodName, PsRegister]
    placement: Placement


def salvage(store: ObjectStore, storage: str, job: JobId) -> Salvaged | None:
    """Look through a job's snapshots; None: there is none that can be read.

    Of each ps the snapshot with the most batches is taken, whichever life wrote it, registered or not: weights and
    ledger are of one moment in each, so each is a state that training can go on from. Manifests are compared with
    their checksums here, everything else by the ps, which falls back to the next one.

    Args:
        store: where they are.
        storage: the job's storage, a URI.
        job: which job.

    Raises:
        TransientError, PermanentError: the store.
    """
    found = list(_manifests(store, storage, job))
    if not found:
        return None
    of_ps: dict[PodName, list[_Found]] = {}
    for uri, manifest in found:
        of_ps.setdefault(manifest.ps, []).append((uri, manifest))
    newest = [max(snapshots, key=_order)[1] for snapshots in of_ps.values()]
    spec = decode_spec(newest[0].spec)
    return Salvaged(
        spec=spec,
        registers={ps: _register(snapshots) for ps, snapshots in sorted(of_ps.items())},
        placement=_placement(spec, newest),
    )


def has_snapshots(store: ObjectStore, storage: str, job: JobId) -> bool:
    """Whether ``salvage`` would find anything; the arguments and errors are its own."""
    return next(_manifests(store, storage, job), None) is not None


async def settle_placement(
    registers: KeyValue,
    store: ObjectStore,
    spec: JobSpec,
    salvaged: Salvaged | None,
    lost: LostLog | None,
    now_s: float,
) -> Placement | None:
    """Make the placement known that the snapshots are of, if a part of the log is lost and groups had moved.

    The lost part may have known of later versions, and have published one that no snapshot is of yet, so the new one is
    numbered by the clock. All registers are written anew, because they may be from before a move.

    Args:
        registers: the job's.
        store: where its snapshots are.
        spec: the job.
        salvaged: what was found there, if somebody has looked already.
        lost: what is gone of the log; None: nothing.
        now_s: seconds since the epoch.

    Returns:
        The placement; None: the log knows it.

    Raises:
        TransientError, PermanentError: store or broker.
        FencedError: somebody else writes the registers.
    """
    if lost is None:
        return None
    salvaged = salvaged or await asyncio.to_thread(salvage, store, spec.storage, spec.job)
    found = salvaged.placement if salvaged else Placement.even(spec.ps)
    if found.version == 1 and await registers.read(PLACEMENT) is None:
        return None
    placement = replace(found, version=max(found.version + 1, int(now_s)))
    for ps, register in salvaged.registers.items() if salvaged else ():
        await _write(registers, ps, encode_register(register))
    await _write(registers, PLACEMENT, encode_placement(placement))
    return placement


async def _write(registers: KeyValue, name: str, value: bytes) -> None:
    for attempt in range(1, _TRIES_MAX + 1):
        entry = await registers.read(name)
        try:
            await registers.write(name, value, after=entry.seq if entry else 0)
            return
        except FencedError:  # The last word of a former life, which was on its way.
            if attempt == _TRIES_MAX:
                raise


async def restore_registers(registers: KeyValue, store: ObjectStore, spec: JobSpec, salvaged: Salvaged | None) -> None:
    """Have the register of every ps name a snapshot that is there, if any is; one that does already is left alone.

    Call it when no process of the job lives. The entry takes the name from whoever might be left after all.

    Args:
        registers: the job's.
        store: where its snapshots are.
        spec: the job.
        salvaged: what was found there, if somebody has looked already.

    Raises:
        TransientError, PermanentError: store or broker.
    """
    for number in range(spec.ps):
        ps = pod_name(Service.PS, number)
        for attempt in range(1, _TRIES_MAX + 1):
            entry = await registers.read(ps)
            former = decode_register(entry.value) if entry else PsRegister(address="", incarnation=NOBODY)
            if await asyncio.to_thread(_names_something, store, former):
                break
            salvaged = salvaged or await asyncio.to_thread(salvage, store, spec.storage, spec.job)
            if salvaged is None or ps not in salvaged.registers:
                break
            try:
                await registers.write(ps, encode_register(salvaged.registers[ps]), after=entry.seq if entry else 0)
                break
            except FencedError:  # The last word of a former life, which was on its way.
                if attempt == _TRIES_MAX:
                    raise


def lost_part(left: LogRecord | None, seen: LogEnd) -> LostLog | None:
    """What is gone of a log, compared with how far it had reached when somebody last looked; None: nothing.

    Args:
        left: the last record that is there; None: there is none.
        seen: how far it had reached.
    """
    if left and left.seq >= seen.seq:
        return None
    return LostLog(
        after_s=left.envelope.time_s if left else 0.0,
        until_s=seen.time_s,
        records=max(0, seen.seq - (left.seq if left else 0)),
    )


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
            continue  # Its ps says so, should it have been registered.


def _placement(spec: JobSpec, newest: list[Manifest]) -> Placement:
    """Who has what, by the newest snapshot of each ps; of two that have a partition, by the later version."""
    version = max(manifest.placement_version for manifest in newest)
    owners = list(Placement.even(spec.ps).owners)
    since = [0] * PARTITIONS
    for manifest in sorted(newest, key=lambda one: one.ps):
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
