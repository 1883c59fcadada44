"""What the snapshots alone tell of a job: its specification, and what to restore each ps from. No log, no register."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elasticdl.cli.run_directory import LogEnd
from elasticdl.shared.bus.ports import Register
from elasticdl.shared.codec import decode_spec
from elasticdl.shared.errors import FencedError
from elasticdl.shared.events import LostLog
from elasticdl.shared.job import JobSpec
from elasticdl.shared.manifests import MANIFEST_NAME, DamagedError, Manifest, read_manifest, snapshots_folder
from elasticdl.shared.names import NOBODY, JobId, PodName, Service, pod_name
from elasticdl.shared.registers import PsRegister, decode_register, encode_register
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
    """

    spec: JobSpec
    registers: Mapping[PodName, PsRegister]


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
    found = _latest_placement(list(_manifests(store, snapshots_folder(storage, job))))
    if not found:
        return None
    of_ps: dict[PodName, list[_Found]] = {}
    for uri, manifest in found:
        of_ps.setdefault(manifest.ps, []).append((uri, manifest))
    newest = max(found, key=_order)[1]
    spec = replace(decode_spec(newest.spec), ps=newest.parts)
    return Salvaged(spec=spec, registers={ps: _register(snapshots) for ps, snapshots in sorted(of_ps.items())})


async def restore_registers(registers: Register, store: ObjectStore, spec: JobSpec, salvaged: Salvaged | None) -> None:
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


def lost_part(left: LogEnd, seen: LogEnd) -> LostLog | None:
    """What is gone of a log, compared with how far it had reached when somebody last looked; None: nothing.

    Args:
        left: how far it reaches.
        seen: how far it had reached.
    """
    if left.seq and left.seq >= seen.seq:
        return None
    return LostLog(after_s=left.time_s, until_s=seen.time_s, records=seen.seq - left.seq)


def _names_something(store: ObjectStore, register: PsRegister) -> bool:
    for uri in (register.manifest, *register.older):
        if uri:
            try:
                store.info(uri)
            except ObjectNotFoundError:
                continue
            return True
    return False


def _manifests(store: ObjectStore, folder: str) -> list[_Found]:
    found: list[_Found] = []
    for info in store.list(folder):
        if info.uri.endswith(f"/{MANIFEST_NAME}"):
            try:
                found.append((info.uri, read_manifest(store, info.uri)))
            except DamagedError:
                continue  # Its ps says so, should it have been registered.
    return found


def _latest_placement(found: list[_Found]) -> list[_Found]:
    """Snapshots under the last table version that every ps has one of: older ones may hold rows that were moved."""
    versions = sorted({manifest.table_version for _, manifest in found}, reverse=True)
    for version in versions:
        snapshots = [(uri, manifest) for uri, manifest in found if manifest.table_version == version]
        if len({manifest.part for _, manifest in snapshots}) == snapshots[0][1].parts:
            return snapshots
    return [(uri, manifest) for uri, manifest in found if manifest.table_version == versions[0]] if versions else []


def _order(found: _Found) -> tuple[int, str, int]:
    manifest = found[1]
    return manifest.ledger.ledger.step, manifest.incarnation, manifest.number


def _register(snapshots: list[_Found]) -> PsRegister:
    newest_first = sorted(snapshots, key=_order, reverse=True)
    uri, manifest = newest_first[0]
    return PsRegister(
        address="",
        incarnation=NOBODY,
        manifest=uri,
        step=manifest.ledger.ledger.step,
        older=tuple(older for older, _ in newest_first[1:]),
    )
