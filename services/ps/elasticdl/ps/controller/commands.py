"""What the controller has the shell do. Each command names its lane; a lane executes its commands in order.

``Lane.BROKER`` waits for the broker, ``Lane.STORAGE`` for the store and for everything that takes long (it cuts, reads,
writes and drops rows), and ``Lane.MODEL`` does what must not wait for either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from elasticdl.ps.moves import GroupLoad
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.uploads import SnapshotUpload
from elasticdl.shared.job.spec import InitialModel
from elasticdl.shared.messages.events import Event
from elasticdl.shared.messages.registers import PsRegister
from elasticdl.shared.model.manifests import Manifest
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.model.stored_spec import StoredSpec


class Lane(Enum):
    """Which commands may overlap: those of different lanes."""

    BROKER = "broker"
    STORAGE = "storage"
    MODEL = "model"


# --- broker -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKey:
    """Read a value of the job's key-value store; the result is a ``KeyValueEntry``, or None if there is no such key."""

    lane: ClassVar[Lane] = Lane.BROKER
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRegister:
    """Replace this ps' register; the result is the sequence number of the new entry.

    Attributes:
        after: sequence number of the entry that it replaces; 0 if absent. The write fails with FencedError if
            another incarnation has replaced it.
    """

    lane: ClassVar[Lane] = Lane.BROKER
    register: PsRegister
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimName(WriteRegister):
    """Take the name over from the former incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSnapshot(WriteRegister):
    """Name the snapshot that the next incarnation restores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmName(WriteRegister):
    """Write the register again as it is: succeeds only if no other incarnation has taken the name over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvent:
    """Append an event to the job's log, and wait for the acknowledgement."""

    lane: ClassVar[Lane] = Lane.BROKER
    event: Event
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinJob:
    """Send heartbeats, watch the key-value store, and receive orders from now on."""

    lane: ClassVar[Lane] = Lane.BROKER


# --- storage and long work --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverShard:
    """Restore what the register names, and install it in the model's core; the result is ``Recovered``."""

    lane: ClassVar[Lane] = Lane.STORAGE
    register: PsRegister


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistory:
    """Read the manifests that a register names; the result are the snapshots that can be read, oldest first."""

    lane: ClassVar[Lane] = Lane.STORAGE
    register: PsRegister


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInitialModel:
    """Read the weights that a new model starts from, and give them to the model's core."""

    lane: ClassVar[Lane] = Lane.STORAGE
    initial: InitialModel


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSnapshot:
    """Check that the kept snapshots are still there, and cut the state for the next one; the result is ``NextCut``.

    Attributes:
        kept: the kept snapshots, oldest first.
        base: manifest URI that an incremental snapshot would build on; empty: the snapshot has to be full.
        dropped_rows: ``core.dropped_rows`` when the last snapshot was cut.
        spec: the object with the job's specification, which is written first if it is not there.
    """

    lane: ClassVar[Lane] = Lane.STORAGE
    kept: Sequence[Snapshot]
    base: str
    dropped_rows: int
    flush: bool
    spec: StoredSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTables:
    """Count the rows of the tables with ``min_count`` or ``expire_after``; the result is a list of ``TableCounted``."""

    lane: ClassVar[Lane] = Lane.STORAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDamages:
    """Check that the kept snapshots, oldest first, are still there; the result says what is wrong, by manifest URI."""

    lane: ClassVar[Lane] = Lane.STORAGE
    kept: Sequence[Snapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCopy:
    """Cut the state for a copy; the result is a ``ShardCut``.

    Attributes:
        since: ``ShardCut.generations`` of an earlier cut: only rows that changed after it; empty: all rows.
    """

    lane: ClassVar[Lane] = Lane.STORAGE
    since: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseCut:
    """Free the rows that a cut saved aside; ``finished``: a snapshot has the cut, so its rows count as saved."""

    lane: ClassVar[Lane] = Lane.STORAGE
    cut: ShardCut
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNextObject:
    """Serialise and write one object of a snapshot; the result is whether more objects follow."""

    lane: ClassVar[Lane] = Lane.STORAGE
    upload: SnapshotUpload


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteObject:
    """Write an object."""

    lane: ClassVar[Lane] = Lane.STORAGE
    uri: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChain:
    """Read the manifests of a snapshot and of everything that it builds on; the result is a ``Chain``."""

    lane: ClassVar[Lane] = Lane.STORAGE
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRows:
    """Prepare the model's core for rows that come with a move; the result is as of ``PsCore.await_rows``."""

    lane: ClassVar[Lane] = Lane.STORAGE
    signature: ModelSignature
    move: int
    partitions: Ranges
    manifest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadNextObject:
    """Read and load one object of a copy; the result is whether more objects follow."""

    lane: ClassVar[Lane] = Lane.STORAGE
    load: GroupLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGarbage:
    """List the objects in this ps' folder that none of the kept snapshots needs; the result is a list of URIs."""

    lane: ClassVar[Lane] = Lane.STORAGE
    kept: Sequence[Snapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteObjects:
    """Delete objects, and the folders that are empty afterwards."""

    lane: ClassVar[Lane] = Lane.STORAGE
    uris: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSnapshot:
    """Delete a snapshot that no other one builds on, and the folders that are empty afterwards."""

    lane: ClassVar[Lane] = Lane.STORAGE
    uri: str
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRows:
    """Drop some rows that this ps does not serve any more; the result is whether there may be more."""

    lane: ClassVar[Lane] = Lane.STORAGE


# --- the model's core, without waiting --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Accept connections; every push and pull is refused until ``StartServing``."""

    lane: ClassVar[Lane] = Lane.MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class StartServing:
    """Answer pushes and pulls."""

    lane: ClassVar[Lane] = Lane.MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezePushes:
    """Refuse pushes until the outcome of a move is known."""

    lane: ClassVar[Lane] = Lane.MODEL
    move: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlacement:
    """Serve what a version of the placement says; the result is whether the version was new."""

    lane: ClassVar[Lane] = Lane.MODEL
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PinModel:
    """Keep the present state readable for an evaluation; the result is its step, or None if it was pinned before."""

    lane: ClassVar[Lane] = Lane.MODEL
    evaluation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinModel:
    """Free the state that was kept for an evaluation."""

    lane: ClassVar[Lane] = Lane.MODEL
    evaluation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Log a message for people; ``level``: ``debug``, ``info``, ``warning`` or ``error``."""

    lane: ClassVar[Lane] = Lane.MODEL
    level: str
    message: str
    facts: Mapping[str, object] = field(default_factory=dict)


BrokerCommand = ReadKey | WriteRegister | PublishEvent | JoinJob
StorageCommand = (
    RecoverShard
    | ReadHistory
    | LoadInitialModel
    | CutSnapshot
    | CountTables
    | FindDamages
    | CutCopy
    | CloseCut
    | WriteNextObject
    | WriteObject
    | ReadChain
    | PrepareRows
    | LoadNextObject
    | ListGarbage
    | DeleteObjects
    | DeleteSnapshot
    | DropRows
)
ModelCommand = Listen | StartServing | FreezePushes | AdoptPlacement | PinModel | UnpinModel | Log
PsCommand = BrokerCommand | StorageCommand | ModelCommand
