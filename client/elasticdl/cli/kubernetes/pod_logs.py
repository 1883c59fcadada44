"""The logs of the pods of a job, as far as the API server has them: those of deleted pods are gone."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from elasticdl.cli.jobs.handle import NewLogLines
from elasticdl.cli.kubernetes.condition import container_states
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import POD, Manifest
from elasticdl.shared.kubernetes.names import (
    COMPONENT_LABEL,
    POD_LABEL,
    PREPARE_CONTAINER,
    SUBMIT_CONTAINER,
    labels,
    selector,
)
from elasticdl.shared.names import JobId, Service
from elasticdl.shared.pods.log_lines import is_noise, readable

LIST_S = 2.0
"""Seconds between two looks for new pods."""
FOLLOWED_MAX = 64
"""Containers whose new lines are read at the same time."""
LAST_S_MAX = 2.0
"""Seconds to wait for the last lines of a job that has ended."""
_TAKEN_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A container that has a log; ``name``: the process, such as ``worker-0``."""

    name: str
    pod: str
    container: str


class KubernetesLogs:
    """See ``PodLogs``. The container ``submit`` of the master's pod is a process of its own."""

    def __init__(self, api: KubernetesApi, job: JobId) -> None:
        self._api = api
        self._job = job

    def pods(self) -> Sequence[str]:
        """See ``PodLogs``."""
        return sorted({source.name for source in self._sources()})

    def read(self, pods: Sequence[str], lines: int) -> tuple[Sequence[tuple[str, str]], NewLogLines]:
        """See ``PodLogs``."""
        found: list[tuple[str, str]] = []
        sources = [source for source in self._sources() if not pods or source.name in pods]
        for source in sources:
            try:
                text = self._api.log(source.pod, container=source.container, tail_lines=lines)
            except ElasticDLError:
                continue  # It was deleted a moment ago, or has not started.
            found += [(source.name, readable(line)) for line in text.splitlines() if not is_noise(line)]
        new = _NewLines(self._api, self._sources, set(sources), lambda name: not pods or name in pods)

        def take(*, last: bool = False) -> Sequence[tuple[str, str]]:
            return [(name, readable(line)) for name, line in new.take(last=last) if not is_noise(line)]

        return found, take

    def printed(self) -> NewLogLines:
        """See ``PodLogs``: what workers write that is no log message."""
        new = _NewLines(self._api, self._sources, set(self._sources()), lambda name: name.startswith(Service.WORKER))

        def take(*, last: bool = False) -> Sequence[tuple[str, str]]:
            return [
                (name, line) for name, line in new.take(last=last) if not line.startswith("{") and not is_noise(line)
            ]

        return take

    def _sources(self) -> list[LogSource]:
        """The containers that have started, in the order in which their pods were created."""
        pods = self._api.list(POD, labels=selector(labels(self._job))).items
        ordered = sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        return [source for pod in ordered for source in _sources_of(pod)]


class _NewLines:
    """Lines that containers write from now on; each is followed on a thread."""

    def __init__(
        self,
        api: KubernetesApi,
        sources: Callable[[], list[LogSource]],
        known: set[LogSource],
        is_wanted: Callable[[str], bool],
    ) -> None:
        self._api = api
        self._sources = sources
        self._is_wanted = is_wanted
        self._lines: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._followed: dict[LogSource, threading.Thread] = {}
        self._listed_s = time.monotonic()
        for source in filter(lambda each: is_wanted(each.name), known):
            self._follow(source, is_new=False)

    def take(self, *, last: bool) -> list[tuple[str, str]]:
        """(process, line) since the last call."""
        if last:
            deadline_s = time.monotonic() + LAST_S_MAX
            for thread in self._followed.values():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        elif time.monotonic() > self._listed_s + LIST_S:
            self._follow_new_pods()
            self._listed_s = time.monotonic()
        found: list[tuple[str, str]] = []
        while not self._lines.empty() and (last or len(found) < _TAKEN_MAX):
            found.append(self._lines.get())
        return found

    def _follow_new_pods(self) -> None:
        try:
            sources = self._sources()
        except ElasticDLError:
            return  # The next look may succeed.
        for source in sources:
            if self._is_wanted(source.name) and source not in self._followed:
                self._follow(source, is_new=True)

    def _follow(self, source: LogSource, *, is_new: bool) -> None:
        if sum(thread.is_alive() for thread in self._followed.values()) >= FOLLOWED_MAX:
            return
        thread = threading.Thread(target=self._read, args=(source, is_new), name=f"log-{source.pod}", daemon=True)
        self._followed[source] = thread
        thread.start()

    def _read(self, source: LogSource, is_new: bool) -> None:
        try:
            lines = self._api.follow_log(source.pod, container=source.container, tail_lines=None if is_new else 0)
            for line in lines:
                self._lines.put((source.name, line))
        except ElasticDLError:
            return  # The pod was deleted.


def _sources_of(pod: Manifest) -> Iterator[LogSource]:
    """The containers of a pod that have started."""
    found = pod["metadata"]["labels"]
    own = found.get(POD_LABEL) or found.get(COMPONENT_LABEL, "")
    for container, state in container_states(pod):
        if "running" in state or "terminated" in state:
            name = container if container in (PREPARE_CONTAINER, SUBMIT_CONTAINER) else own
            yield LogSource(name=name, pod=pod["metadata"]["name"], container=container)
