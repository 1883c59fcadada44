"""Runs the tasks of callbacks one after the other, whichever worker gets them, through the job's storage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.shared.storage import ObjectStore, join, open_store
from elasticdl.worker.core.commands import MergeResult, RunCallbacks

Instances = Mapping[str, str]
"""ps -> the instance that has the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """What callbacks can have done with the model at the end of an epoch.

    Attributes:
        save: writes the file of this URI.
        summarize: writes the event file of an epoch, from 0, with the graph or without it.
        load: makes the model with its weights, as Keras' object.
    """

    save: Callable[[str, Instances], None]
    summarize: Callable[[int, bool, Instances], None]
    load: Callable[[Instances], Any]


class Hooks(Protocol):
    """The callbacks as live objects."""

    def run(self, command: RunCallbacks) -> MergeResult:
        """Run the hooks of one task."""
        ...

    def state(self) -> dict[str, Any]:
        """What another process needs to continue, as JSON values."""
        ...

    def restore(self, state: Mapping[str, Any], epoch: int) -> None:
        """Continue from the state of another process; hooks of this epoch, from 0, run next."""
        ...


def last_states(storage: str) -> list[Mapping[str, Any]]:
    """What ``Hooks.state`` has said of each callback after the last hooks that a job ran; empty: it ran none.

    Args:
        storage: URI of the job's storage.
    """
    store = open_store(storage)
    uris = [info.uri for info in store.list(_folder(storage))]
    states: list[Mapping[str, Any]] = json.loads(store.read(max(uris)))["state"]["callbacks"] if uris else []
    return states


def _folder(storage: str) -> str:
    return join(storage, "callbacks", "")


class CallbackTasks:
    """The tasks of a job's callbacks; ``store``: the adapter for it; None: that of the URI."""

    def __init__(
        self,
        make: Callable[[], Hooks],
        storage: str,
        store: ObjectStore | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._make = make
        self._store = store or open_store(storage)
        self._waiting = waiting
        self._folder = _folder(storage)
        self._hooks: Hooks | None = None
        self._number = 0
        """The task that ``_hooks`` has run last."""

    def run(self, command: RunCallbacks) -> MergeResult:
        """Run the hooks of a task, unless they have run: then return their result.

        Raises:
            UserError: a hook raised, or a callback uses what it can't have.
        """
        with self._waiting():
            listed = self._store.list(self._folder)
        stored = [info.uri for info in listed if info.uri <= self._uri(command.number)]
        if stored[-1:] == [self._uri(command.number)]:
            done = self._read(stored[-1])
            return MergeResult(results=done["results"], note=done["note"])
        hooks = self._hooks_after(stored[-1] if stored else "", command.number // 2 - 1 + command.number % 2)
        self._hooks = None  # A hook that raises leaves its callback in an unknown state.
        result = hooks.run(command)
        done = {"results": dict(result.results), "note": result.note, "state": hooks.state()}
        with self._waiting():
            self._store.write(self._uri(command.number), json.dumps(done).encode())
        self._hooks, self._number = hooks, command.number
        return result

    def _hooks_after(self, previous: str, epoch: int) -> Hooks:
        if self._hooks is not None and previous == self._uri(self._number):
            return self._hooks
        hooks = self._make()
        if previous:
            hooks.restore(self._read(previous)["state"], epoch)
        return hooks

    def _uri(self, number: int) -> str:
        return f"{self._folder}{number:08d}.json"

    def _read(self, uri: str) -> Any:
        with self._waiting():
            return json.loads(self._store.read(uri))
