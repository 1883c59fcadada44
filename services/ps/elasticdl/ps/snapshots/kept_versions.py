"""The versions of the whole model that a job's snapshots contain: to export one, or to start another job from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.warm_start import WarmStart
from elasticdl.ps.snapshots.reader import gather_weights
from elasticdl.ps.snapshots.recovery import choose
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import InitialModel, JobSpec, SnapshotPart
from elasticdl.shared.messages.registers import PsRegister
from elasticdl.shared.model.manifests import MANIFEST_NAME, DamagedError, manifest_uris, snapshots_folder
from elasticdl.shared.model.placement import ALL, Ranges
from elasticdl.shared.model.rows.snapshot_rows import Chain, read_chain
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.model.whole_model import Floats, Ids, write_model
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectStore, open_store
from elasticdl.shared.wire.messages import TableIds


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """One version of the model: each partition from one snapshot.

    Attributes:
        parts: snapshots, each with what it builds on, and the partitions to take from them.
    """

    parts: tuple[tuple[Chain, Ranges], ...]

    @property
    def steps(self) -> tuple[int, int]:
        """The least and the greatest step of its snapshots; they differ if the ps saved them at different moments."""
        steps = [chain[-1][1].step for chain, _ in self.parts]
        return min(steps), max(steps)

    @property
    def signature(self) -> ModelSignature:
        """The model."""
        return ModelSignature.from_json(self.parts[0][0][-1][1].signature)

    @property
    def step(self) -> int:
        """The step that names it."""
        return self.steps[1]

    def as_initial_model(self, job: JobId) -> InitialModel:
        """This version of a job, as the start of another job."""
        parts = [SnapshotPart(manifest=chain[-1][0], partitions=partitions) for chain, partitions in self.parts]
        return InitialModel(job=job, step=self.step, parts=tuple(parts))


def kept_versions(store: ObjectStore, spec: JobSpec, registers: Iterable[PsRegister]) -> list[KeptVersion]:
    """The versions that can be read, the newest first.

    Args:
        registers: of the ps. Without any, or if a partition is in none of their snapshots, all snapshots in the storage
            count.

    Raises:
        UserError: the dense variables and the tables of the job are in snapshots of their own.
    """
    if spec.has_tables_beside_ring:
        raise UserError(
            f"job {spec.job} has its dense variables in a ring of workers and its tables on parameter servers, and "
            "their snapshots are not read as one model",
            hint="Use the model that the job exports to --output.",
        )
    registered = [uri for register in registers for uri in (register.manifest, *register.older) if uri]
    versions = _versions(store, registered)
    return versions or _versions(store, manifest_uris(store, snapshots_folder(spec.storage, spec.job), MANIFEST_NAME))


def read_warm_start(initial: InitialModel, policy: UpdatePolicy, owned: Ranges) -> WarmStart:
    """The weights of a version from which a new job starts. Raises ``UserError`` that names a damaged object."""
    store = open_store(initial.parts[0].manifest)
    try:
        parts = [(read_chain(store, part.manifest), part.partitions) for part in initial.parts]
        weights = gather_weights(store, policy, parts, rows=owned, slots=initial.has_optimizer)
    except DamagedError as error:
        raise UserError(
            f"the weights of {initial.source}, from which this job starts, can't be read: {error}",
            hint="Was that job cleaned or resumed meanwhile? Start a new job." if initial.job else "Start a new job.",
        ) from error
    return WarmStart(initial=initial, weights=weights)


def write_version(
    store: ObjectStore, spec: JobSpec, version: KeptVersion, file: Path, *, has_tables: bool = True
) -> None:
    """Write a version into one local file, with averages of dense weights if there are any; see ``whole_model``."""
    shard = gather_weights(store, UpdatePolicy.of(spec), version.parts, rows=ALL if has_tables else (), averages=True)
    numbers = {table.name: number for number, table in enumerate(shard.signature.tables)}

    def rows_of(name: str, ids: Ids) -> Floats:
        number = numbers[name]
        width = shard.signature.tables[number].width
        rows = np.empty(ids.size * width, np.float32)
        shard.pull([TableIds(table=number, width=width, ids=ids)], rows, None)
        return rows.reshape(-1, width)

    tables = shard.signature.tables if has_tables else ()
    write_model(file, shard.whole_dense(averages=True), rows_of, {table.name: table.input_dim for table in tables})


def _versions(store: ObjectStore, uris: Iterable[str]) -> list[KeptVersion]:
    """Versions of some snapshots: each version is made of the newest ones that are older than all of the one before."""
    chains: list[Chain] = []
    for uri in uris:
        try:
            chains.append(read_chain(store, uri))
        except DamagedError:
            continue  # Its ps reports it when the job is resumed.
    versions = []
    while parts := choose(chains, ALL):
        version = KeptVersion(parts=tuple(parts))
        versions.append(version)
        least = version.steps[0]
        chains = [chain for chain in chains if chain[-1][1].step < least]
    return versions
