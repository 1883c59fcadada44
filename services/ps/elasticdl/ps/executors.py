"""What executes the controller's commands: one executor per lane. None of them decides anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol, assert_never

from elasticdl.ps.controller import commands
from elasticdl.ps.controller.events import CommandFailed, CommandSucceeded
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.kept_versions import read_warm_start
from elasticdl.ps.snapshots.next_cut import NextCut, next_cut
from elasticdl.ps.snapshots.recovery import Recovered, read_history, recover
from elasticdl.ps.snapshots.references import folders_of
from elasticdl.ps.snapshots.uploads import UploadWriter
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import KeyValue
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.measurements import TableCounted
from elasticdl.shared.messages.registers import PsRegister, encode_register
from elasticdl.shared.model.manifests import DamagedError, Manifest, chunk_uri
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.names import PodName
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.storage import ObjectStore, join, remove_empty_folders

_DROP_PAUSE_S = 0.001
"""Pause after dropping some rows, so that waiting pushes get the lock: seconds."""

_log = get_logger()


class Executor(Protocol):
    """Executes the commands of a lane."""

    def execute(self, command: Any) -> Any:
        """Execute a command; returns the result that the command's docstring names."""


def report(issued: Issued[commands.PsCommand], execute: Callable[[Any], Any]) -> CommandSucceeded | CommandFailed:
    """Execute a command; returns the event with its outcome. Any exception is a defect that has to end the process."""
    try:
        result = execute(issued.command)
    except ElasticDLError as error:
        return CommandFailed(number=issued.number, error=error)
    return CommandSucceeded(number=issued.number, result=result)


class StorageExecutor:
    """Executes ``StorageCommand``. Used by one thread."""

    def __init__(
        self, core: PsCore, store: ObjectStore, folder: str, ps: PodName, *, drop_pause_s: float = _DROP_PAUSE_S
    ) -> None:
        self._core = core
        self._store = store
        self._folder = folder
        self._own_folder = join(folder, ps, "")
        self._drop_pause_s = drop_pause_s
        self._writer = UploadWriter(store)

    def execute(self, command: commands.StorageCommand) -> Any:
        """Execute a command; returns the result that its docstring names."""
        core, store = self._core, self._store
        match command:
            case commands.RecoverShard(register=register):
                return self._recover(register)
            case commands.LoadInitialModel(initial=initial):
                core.warm_start = read_warm_start(initial, core.policy, core.owned)
                return None
            case commands.CutSnapshot():
                return self._cut(command)
            case commands.CountTables() | commands.FindDamages():
                return self._examine(command)
            case commands.CutCopy(since=since):
                return core.cut(dirty_only=False, flush=False, since=since)
            case commands.CloseCut(cut=cut, finished=finished):
                return cut.close(finished=finished)
            case commands.WriteNextObject(upload=upload):
                return self._writer.write_next(upload)
            case commands.WriteObject(uri=uri, data=data):
                return store.write(uri, data)
            case commands.ReadChain() | commands.ReadHistory():
                return self._read(command)
            case commands.PrepareRows(signature=signature, move=move, partitions=partitions, manifest=uri):
                return core.await_rows(signature, move, partitions, uri)
            case commands.LoadNextObject(load=load):
                return load.load_next(store)
            case _:
                return self._remove(command)

    def _read(self, command: commands.ReadChain | commands.ReadHistory) -> Any:
        if isinstance(command, commands.ReadHistory):
            return read_history(self._store, command.register)
        return read_chain(self._store, command.uri)

    def _examine(self, command: commands.CountTables | commands.FindDamages) -> Any:
        match command:
            case commands.CountTables():
                return count_tables(self._core)
            case commands.FindDamages(kept=kept):
                return find_damages(self._store, self._own_folder, kept)
            case _:
                assert_never(command)

    def _remove(
        self, command: commands.ListGarbage | commands.DeleteObjects | commands.DeleteSnapshot | commands.DropRows
    ) -> Any:
        match command:
            case commands.ListGarbage(kept=kept):
                return garbage(self._store, self._own_folder, kept)
            case commands.DeleteObjects(uris=uris):
                delete_objects(self._store, uris)
                return remove_empty_folders(self._own_folder)
            case commands.DeleteSnapshot(uri=uri, manifest=manifest):
                delete_snapshot(self._store, uri, manifest)
                return remove_empty_folders(self._own_folder)
            case commands.DropRows():
                return self._drop_rows()
            case _:
                assert_never(command)

    def close(self) -> None:
        """End the threads that write copies."""
        self._writer.close()

    def _recover(self, register: PsRegister) -> Recovered:
        recovered = recover(self._store, self._core, register, self._folder)
        if recovered.shard is not None:
            self._core.install(recovered.shard)
        return recovered

    def _cut(self, command: commands.CutSnapshot) -> NextCut:
        command.spec.write_if_missing(self._store)
        damages = find_damages(self._store, self._own_folder, command.kept)
        newest = next((manifest for uri, manifest in reversed(command.kept) if uri not in damages), None)
        base = "" if command.base in damages else command.base
        following = next_cut(self._core, newest, base, command.dropped_rows, flush=command.flush)
        return NextCut(damages=damages, base=following[0], cut=following[1]) if following else NextCut(damages=damages)

    def _drop_rows(self) -> bool:
        more = self._core.drop_some()
        if more and self._drop_pause_s:
            time.sleep(self._drop_pause_s)
        return more


def count_tables(core: PsCore) -> list[TableCounted]:
    """Count the rows of tracked tables. Pulls and pushes wait meanwhile, about 50 ms for a million rows."""
    with core.lock:
        found = core.shard.table_figures() if core.shard is not None else {}
    return [
        TableCounted(table=name, rows=one.rows, candidates=one.candidates, admitted=one.admitted, dropped=one.dropped)
        for name, one in found.items()
    ]


class Endpoint(Protocol):
    """The parts of the process that begin to work during start-up."""

    def listen(self) -> None:
        """Accept connections."""

    def join_job(self) -> None:
        """Send heartbeats, watch the key-value store, and receive orders; returns when orders are received."""


class ModelExecutor:
    """Executes ``ModelCommand``. Used by one thread."""

    def __init__(self, core: PsCore, endpoint: Endpoint) -> None:
        self._core = core
        self._endpoint = endpoint

    def execute(self, command: commands.ModelCommand) -> Any:
        """Execute a command; see ``StorageExecutor.execute``."""
        core = self._core
        match command:
            case commands.Listen():
                return self._endpoint.listen()
            case commands.StartServing():
                return core.start_serving()
            case commands.FreezePushes(move=move):
                return core.freeze(move)
            case commands.AdoptPlacement(placement=placement):
                return core.adopt(placement)
            case commands.PinModel(evaluation=evaluation):
                return core.open_pin(evaluation)
            case commands.UnpinModel(evaluation=evaluation):
                return core.close_pin(evaluation)
            case commands.Log(level=level, message=message, facts=facts):
                return getattr(_log, level)(message, **facts)
            case _:
                assert_never(command)


class BrokerExecutor:
    """Executes ``BrokerCommand``, and waits for the broker. Used by one thread."""

    def __init__(
        self, registers: KeyValue, loop: LoopThread, publisher: EventPublisher, ps: PodName, endpoint: Endpoint
    ) -> None:
        self._registers = registers
        self._loop = loop
        self._publisher = publisher
        self._ps = ps
        self._endpoint = endpoint

    def execute(self, command: commands.BrokerCommand) -> Any:
        """Execute a command; see ``StorageExecutor.execute``."""
        match command:
            case commands.ReadKey(name=name):
                return self._loop.call(self._registers.read(name))
            case commands.WriteRegister(register=register, after=after):
                return self._loop.call(self._registers.write(self._ps, encode_register(register), after=after))
            case commands.PublishEvent(event=event, cause=cause):
                return self._loop.call(self._publisher.publish(event, cause=cause))
            case commands.JoinJob():
                return self._endpoint.join_job()
            case _:
                assert_never(command)


def find_damages(store: ObjectStore, folder: str, snapshots: Iterable[Snapshot]) -> dict[str, DamagedError]:
    """Which snapshots can't be restored any more, as far as a listing shows: objects are gone or have another size.

    A new snapshot must not build on these.

    Args:
        snapshots: in the order in which they were taken.

    Returns:
        What is wrong, by manifest URI; a snapshot that builds on a damaged one has the same damage.
    """
    sizes = {info.uri: info.size_bytes for info in store.list(folder)}
    damages: dict[str, DamagedError] = {}
    for uri, manifest in snapshots:
        damage = damages.get(manifest.base) or next(_damages(sizes, uri, manifest), None)
        if damage is not None:
            damages[uri] = damage
    return damages


def _damages(sizes: dict[str, int], uri: str, manifest: Manifest) -> Iterator[DamagedError]:
    if uri not in sizes:
        yield DamagedError(uri, "is missing")
    for chunk in manifest.chunks:
        name = chunk_uri(chunk.of or uri, chunk.name)
        if name not in sizes:
            yield DamagedError(name, "is missing", snapshot=uri)
        elif sizes[name] != chunk.size_bytes:
            yield DamagedError(name, f"has {sizes[name]} bytes instead of {chunk.size_bytes}", snapshot=uri)


def garbage(store: ObjectStore, folder: str, kept: Collection[Snapshot]) -> list[str]:
    """What other incarnations left in a ps' folder: half-written snapshots, and complete ones that nothing needs."""
    folders = tuple({folder for snapshot in kept for folder in folders_of(*snapshot)})
    return [info.uri for info in store.list(folder) if not info.uri.startswith(folders)]


def delete_objects(store: ObjectStore, uris: Iterable[str]) -> None:
    """Remove objects. After an error of the store the objects that are left are garbage."""
    for uri in uris:
        store.delete(uri)


def delete_snapshot(store: ObjectStore, uri: str, manifest: Manifest) -> None:
    """Remove a snapshot that no other one builds on, its manifest first, and the copies that it refers to.

    Other snapshots that refer to the same copies belong to the same chain, which is removed as a whole.

    Raises:
        TransientError, PermanentError: the store failed; the objects that are left are garbage.
    """
    store.delete(uri)
    for chunk in manifest.chunks:
        store.delete(chunk_uri(chunk.of or uri, chunk.name))
    for copy in {chunk.of for chunk in manifest.chunks if chunk.of}:
        store.delete(copy)
