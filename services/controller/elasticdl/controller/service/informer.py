"""``Informer``: the objects of one kind as the API server has them, kept up to date on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Kind, Manifest
from elasticdl.shared.kubernetes.refusals import WatchExpiredError
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.retries import Backoff

T = TypeVar("T")
BACKOFF = Backoff(first_s=0.5, max_s=30.0)
"""Pauses after failures of the API server in a row."""

_log = get_logger()


class Informer(Generic[T]):
    """What objects say, each read once when it changes.

    Args:
        read: what is kept of an object; None: nothing, as if it were not there. An object that it
            can't read is left out, too, with a warning: one odd quantity must not end the watch.
        on_change: is called on the informer's thread after each change.
        everywhere: in all namespaces.
        labels: only objects with these labels, see ``names.selector``.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: Kind,
        read: Callable[[Manifest], T | None],
        on_change: Callable[[], None],
        *,
        everywhere: bool,
        labels: str = "",
    ) -> None:
        self._api = api
        self._kind = kind
        self._read = read
        self._on_change = on_change
        self._everywhere = everywhere
        self._labels = labels
        self._objects: dict[str, T] = {}
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self.is_synced = threading.Event()
        """Set once all objects were listed."""

    def start(self) -> None:
        """List and watch from now on."""
        threading.Thread(target=self._run, name=f"watch of {self._kind.plural}", daemon=True).start()

    def stop(self) -> None:
        """End the thread after its present request."""
        self._is_stopped.set()

    def all(self) -> list[T]:
        """What is there now."""
        with self._lock:
            return list(self._objects.values())

    def _run(self) -> None:
        failures = 0
        while not self._is_stopped.is_set():
            try:
                resource_version = self._list()
                while not self._is_stopped.is_set():
                    resource_version = self._watch(resource_version)
                    failures = 0
            except WatchExpiredError:
                continue
            except ElasticDLError as error:
                failures += 1
                _log.warning("objects can't be watched", kind=self._kind.plural, reason=str(error))
                self._is_stopped.wait(BACKOFF.pause_s(failures))

    def _understood(self, manifest: Manifest) -> T | None:
        try:
            return self._read(manifest)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            name = manifest["metadata"].get("name", "")
            _log.warning(
                "an object can't be read and does not count", kind=self._kind.plural, object=name, reason=repr(error)
            )
            return None

    def _list(self) -> str:
        listed = self._api.list(self._kind, labels=self._labels, everywhere=self._everywhere)
        objects = {each["metadata"]["uid"]: self._understood(each) for each in listed.items}
        with self._lock:
            self._objects = {uid: found for uid, found in objects.items() if found is not None}
        self.is_synced.set()
        self._on_change()
        return listed.resource_version

    def _watch(self, resource_version: str) -> str:
        """Follow the changes until the API server ends the watch; returns the moment from which to continue."""
        watched = self._api.watch(self._kind, resource_version, labels=self._labels, everywhere=self._everywhere)
        for change in watched:
            resource_version = change.resource_version
            if change.type == "BOOKMARK":
                continue
            uid = change.object["metadata"]["uid"]
            found = None if change.type == "DELETED" else self._understood(change.object)
            with self._lock:
                if found is None:
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = found
            self._on_change()
            if self._is_stopped.is_set():
                break
        return resource_version
