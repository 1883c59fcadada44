"""The shell around a ``Pods`` adapter: executes the master's commands, and reports pod changes to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticdl.shared.errors import PermanentError, TransientError
from elasticdl.shared.messages.commands import Command, StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodPending, PodStarted
from elasticdl.shared.names import NO_INSTANCE, PodInstance, PodName, Service
from elasticdl.shared.pods.ports import EARLY_SEQ, Ended, Pending, Phase, Pods, PodStatus, Running
from elasticdl.shared.process.logs import get_logger

_RANKS: dict[type[Phase], int] = {Pending: 0, Running: 1, Ended: 2}

_log = get_logger()


class Publish(Protocol):
    """Takes events for the log: ``QueuedEventPublisher.publish``."""

    def __call__(self, event: Event, cause: str = "") -> None:
        """Append an event to the log."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreportedPod:
    """A pod that a former supervisor was told to start, and whose start is not on the log.

    Attributes:
        former: the last pod of this name whose end is on the log.
        is_wanted: whether no command has stopped it since.
        is_spare: see ``StartPod``.
    """

    pod: PodName
    service: Service
    former: PodInstance
    is_wanted: bool
    is_spare: bool = False


class PodSupervisor:
    """Runs where the adapter is: in the launcher, or in the master of a job on a cluster.

    A pod goes through its phases once, and a later pod of the same name has a higher ``creation_seq``. So a status that
    is not beyond the reported one is a late or repeated one, and is ignored. One command can create several pods: a
    platform that has forgotten a pod with its node creates it again when the command is repeated. A name has one pod at
    a time, so the start of another one is the end of the reported one.

    Args:
        known: running pods that an earlier supervisor has reported; ``creation_seq`` is 0 if it is not known any more.
        unreported: pods that an earlier supervisor has perhaps created.
        creation_seq: position in the log at which this supervisor begins; pods that it has to create again get it.
    """

    def __init__(
        self,
        pods: Pods,
        publish: Publish,
        known: Iterable[PodStatus] = (),
        unreported: Iterable[UnreportedPod] = (),
        creation_seq: int = 0,
    ) -> None:
        self._pods = pods
        self._publish = publish
        self._reported: dict[PodName, PodStatus] = {status.pod: status for status in known}
        self._ended: dict[PodName, set[PodInstance]] = {}
        """The pods of each name's last ``creation_seq`` whose ends were reported. Their changes are late ones."""
        self._unreported = tuple(unreported)
        self._creation_seq = creation_seq
        self._causes: dict[PodName, str] = dict.fromkeys(
            (*self._reported, *(each.pod for each in self._unreported)), ""
        )
        """The latest decision about each pod; empty: one that a former supervisor has executed."""

    async def execute(self, command: Command, cause: str) -> None:
        """Execute a command of the decision ``cause``. A command that was executed before changes nothing.

        Raises:
            PermanentError: the platform refuses, or it is not a command about a pod.
        """
        match command:
            case StartPod(pod=pod) if self._has_ended(pod, int(cause)):
                pass  # The platform may have forgotten that pod with its node, and would create it again.
            case StartPod(pod=pod, service=service):
                self._causes[pod] = cause
                self._report(await self._pods.create(pod, service, int(cause), is_spare=command.is_spare))
            case StopPod(pod=pod, instance=instance, kill=kill):
                await self._pods.delete(pod, instance, int(cause), kill=kill)
            case _:
                raise PermanentError(f"{type(command).__name__} is not a command about a pod")

    async def run(self) -> None:
        """Watch the pods and report their changes; never returns."""
        while True:
            try:
                reported = list(self._reported.values())
                listed = await self._pods.list()
                self._report_missing(reported, listed)
                for status in listed:
                    self._report(status)
                await self._restore_unreported()
                async for status in self._pods.watch():
                    self._report(status)
            except TransientError as error:
                _log.warning("watching the pods again", reason=str(error))
                await asyncio.sleep(error.retry_after_s)

    async def _restore_unreported(self) -> None:
        """Create the unreported pods that are not there: their quota was used up, or their node was lost."""
        for each in self._unreported:
            reported = self._reported.get(each.pod)
            if reported is not None and reported.instance != each.former:
                continue
            status = PodStatus(
                pod=each.pod,
                service=each.service,
                creation_seq=self._creation_seq,
                phase=Ended(cause=ExitCause.STOPPED),
            )
            if each.is_wanted:
                status = await self._pods.create(each.pod, each.service, self._creation_seq, is_spare=each.is_spare)
            self._report(status)
        self._unreported = ()

    def _has_ended(self, pod: PodName, creation_seq: int) -> bool:
        """Whether the end of the pod with this ``creation_seq``, or of a later one, was reported."""
        reported = self._reported.get(pod)
        return reported is not None and isinstance(reported.phase, Ended) and reported.creation_seq >= creation_seq

    def _report_missing(self, reported: Iterable[PodStatus], listed: Sequence[PodStatus]) -> None:
        """Report the end of pods that the platform does not know any more."""
        latest = {status.pod: status for status in listed}
        for status in reported:
            found = latest.get(status.pod)
            if found is None or (found.creation_seq != status.creation_seq and found.instance != status.instance):
                self._report(_ended(status, Ended(cause=ExitCause.NODE_LOST)))

    def _report(self, status: PodStatus) -> None:
        """Publish the events that follow from a status, if there are any."""
        if status.creation_seq == EARLY_SEQ and status.pod not in self._causes:
            return  # The master knows no such pod yet.
        former = self._reported.get(status.pod)
        if former and (not _is_newer(status, former) or status.instance in self._ended.get(status.pod, ())):
            return
        if former and isinstance(former.phase, Running) and former.instance != status.instance:
            lost = Ended(cause=ExitCause.NODE_LOST)
            self._report_end(former, lost)
            former = _ended(former, lost)
        if former is None or former.creation_seq < status.creation_seq:
            self._ended.pop(status.pod, None)
        self._reported[status.pod] = status
        match status.phase:
            case Pending(reason=""):
                pass
            case Pending(reason=reason, limit_s=limit_s):
                self._publish(PodPending(pod=status.pod, service=status.service, reason=reason, limit_s=limit_s))
            case Running():
                self._report_start(status)
            case Ended() as ended:
                if (
                    former is None
                    or former.creation_seq != status.creation_seq
                    or not isinstance(former.phase, Running)
                ):
                    self._report_start(status)
                self._report_end(status, ended)

    def _report_start(self, status: PodStatus) -> None:
        started = PodStarted(pod=status.pod, service=status.service, instance=_instance(status))
        self._publish(
            started, cause=str(status.creation_seq) if status.creation_seq != EARLY_SEQ else self._causes[status.pod]
        )

    def _report_end(self, status: PodStatus, ended: Ended) -> None:
        self._ended.setdefault(status.pod, set()).add(_instance(status))
        self._publish(
            PodExited(
                pod=status.pod,
                service=status.service,
                instance=_instance(status),
                cause=ended.cause,
                exit_code=ended.exit_code,
                running_batches=ended.running_batches,
                log_tail=ended.log_tail,
                batches=ended.batches,
                memory_limit_bytes=ended.memory_limit_bytes,
                next_memory_limit_bytes=ended.next_memory_limit_bytes,
            )
        )


def _is_newer(status: PodStatus, former: PodStatus) -> bool:
    """Whether a status is later than the reported one.

    It has a later ``creation_seq`` or phase, a new reason to be pending, or is of another pod with the same one.
    """
    if (
        status.creation_seq == former.creation_seq
        and status.instance
        and former.instance not in (NO_INSTANCE, status.instance)
    ):
        return True
    progress, former_progress = ((each.creation_seq, _RANKS[type(each.phase)]) for each in (status, former))
    if (
        isinstance(status.phase, Pending)
        and isinstance(former.phase, Pending)
        and status.creation_seq == former.creation_seq
    ):
        return status.phase.reason not in ("", former.phase.reason)
    return progress > former_progress


def _instance(status: PodStatus) -> PodInstance:
    """The instance for the log. A pod that ended without a process gets a name of its own."""
    return status.instance or PodInstance(f"never started {status.creation_seq}")


def _ended(status: PodStatus, ended: Ended) -> PodStatus:
    return PodStatus(
        pod=status.pod, service=status.service, creation_seq=status.creation_seq, instance=status.instance, phase=ended
    )
