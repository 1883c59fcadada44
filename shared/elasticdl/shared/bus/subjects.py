"""Every subject and stream name, built by typed functions; ``TABLE`` lists them for the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elasticdl.shared.names import JobId, PodName, Purpose, Service

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
RING = "ring"
"""Name of the register with the ring generation."""
PLACEMENT = "placement"
"""Name of the register with the placement (partition -> ps); every other register has the name of a ps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table of subjects.

    Attributes:
        stream: ``TASKS``, ``EVENTS``, ``PAYLOADS``, ``STATES``, ``MODEL``, ``CORE``, ``core`` or ``core request``.
    """

    subject: str
    stream: str
    senders: str
    receivers: str
    content: str


TABLE: tuple[Row, ...] = (
    Row(
        subject="edl.v1.<job>.task.<purpose>",
        stream="TASKS",
        senders="master",
        receivers="workers",
        content="Task, first dispatch",
    ),
    Row(
        subject="edl.v1.<job>.task.<purpose>.again",
        stream="TASKS",
        senders="master",
        receivers="workers",
        content="Task, dispatched again; polled before the others",
    ),
    Row(
        subject="edl.v1.<job>.event.<service>.<name>",
        stream="EVENTS",
        senders="all",
        receivers="master, tools",
        content="Envelope",
    ),
    Row(
        subject="edl.v1.<job>.event.master",
        stream="EVENTS",
        senders="master",
        receivers="master, tools",
        content="Envelope: decisions, in one order for all masters",
    ),
    Row(
        subject="edl.v1.<job>.model.<ps>",
        stream="MODEL",
        senders="ps",
        receivers="all",
        content="the ps' register: claim, then model versions",
    ),
    Row(
        subject="edl.v1.<job>.placement",
        stream="MODEL",
        senders="master",
        receivers="ps, workers",
        content="the table from partitions of the model to ps, with its version",
    ),
    Row(
        subject="edl.v1.<job>.ring",
        stream="MODEL",
        senders="master",
        receivers="workers",
        content="jobs with AllreduceStrategy: the generation of the ring, with members, addresses, nodes and reason",
    ),
    Row(
        subject="edl.v1.<job>.core.<service>",
        stream="CORE",
        senders="master",
        receivers="master, tools",
        content="core snapshot: the folded state with its place in the log and its schema, or the names of its parts",
    ),
    Row(
        subject="edl.v1.<job>.core.<service>-<stretch>",
        stream="CORE",
        senders="master",
        receivers="tools, master",
        content="the core snapshot that is kept of a stretch of 20,000 records of the log",
    ),
    Row(
        subject="edl.v1.<job>.core.<service>.<write>-<part>",
        stream="CORE",
        senders="master",
        receivers="master, tools",
        content="a part of a core snapshot that is too large for one message",
    ),
    Row(
        subject="edl.v1.<job>.payload.<digest>-<part>",
        stream="PAYLOADS",
        senders="all",
        receivers="master, tools",
        content="a part of the data of an event that is too large for the log, compressed",
    ),
    Row(
        subject="edl.v1.<job>.states.<group>",
        stream="STATES",
        senders="workers",
        receivers="workers",
        content="a part of large metric states of an evaluation, compressed, until they are summed",
    ),
    Row(
        subject="edl.v1.<job>.heartbeat.<service>.<name>",
        stream="core",
        senders="all",
        receivers="master, tools",
        content="Heartbeat",
    ),
    Row(
        subject="edl.v1.<job>.wake",
        stream="core",
        senders="master",
        receivers="workers",
        content="names of the consumers that have tasks; empty: any",
    ),
    Row(
        subject="edl.v1.<job>.order.<pod>",
        stream="core request",
        senders="master",
        receivers="ps, launcher",
        content="Command",
    ),
)


def _join(job: JobId, *tokens: str) -> str:
    for token in (job, *tokens):
        if not _TOKEN.fullmatch(token):
            raise ValueError(f"{token!r} can't be a part of a subject")
    return ".".join(("edl", "v1", job, *tokens))


def task(job: JobId, purpose: Purpose, *, again: bool = False) -> str:
    """The subject of tasks of one purpose; ``again`` for those that were dispatched before."""
    return _join(job, "task", purpose.value, *(("again",) if again else ()))


def event(job: JobId, service: Service, name: PodName) -> str:
    """The subject of a process's events."""
    return _join(job, "event", service.value, name)


def decision(job: JobId) -> str:
    """The subject of all masters' decisions: one subject, so that a fenced master's append is refused."""
    return _join(job, "event", "master")


def register(job: JobId, name: str) -> str:
    """The subject of the register of a ps, of the placement, or of the ring."""
    return _join(job, name) if name in (RING, PLACEMENT) else _join(job, "model", *name.split("."))


def register_name(job: JobId, subject: str) -> str:
    """The inverse of ``register``."""
    return subject.removeprefix(_join(job, "model") + ".").removeprefix(_join(job) + ".")


def core(job: JobId, name: str) -> str:
    """The subject of a core snapshot, see ``core_snapshot.kept_name``, or of a part of it: ``NAME.PART``."""
    return _join(job, "core", *name.split("."))


def core_name(job: JobId, subject: str) -> str:
    """The inverse of ``core``."""
    return subject.removeprefix(_join(job, "core") + ".")


def payload(job: JobId, name: str) -> str:
    """The subject of a part of a large event's data."""
    return _join(job, "payload", name)


def payload_name(job: JobId, subject: str) -> str:
    """The inverse of ``payload``."""
    return subject.removeprefix(_join(job, "payload") + ".")


def states(job: JobId, group: str) -> str:
    """The subject of the stored metric states of an evaluation."""
    return _join(job, "states", group)


def heartbeat(job: JobId, service: Service, name: PodName) -> str:
    """The subject of a process's heartbeats."""
    return _join(job, "heartbeat", service.value, name)


def heartbeats(job: JobId) -> str:
    """The pattern of all heartbeats of a job."""
    return _join(job, "heartbeat") + ".>"


def wake(job: JobId) -> str:
    """The subject that wakes idle workers when tasks are waiting."""
    return _join(job, "wake")


def order(job: JobId, pod: PodName) -> str:
    """The subject of the master's orders to a process."""
    return _join(job, "order", pod)


def tasks_stream(job: JobId) -> str:
    """Name of the work queue's stream."""
    return f"EDL-{job}-TASKS"


def events_stream(job: JobId) -> str:
    """Name of the event log's stream."""
    return f"EDL-{job}-EVENTS"


def job_of_events_stream(stream: str) -> JobId | None:
    """Inverse of ``events_stream``; None: the stream is another one."""
    prefix, suffix = events_stream(JobId("|")).split("|")
    is_log = stream.startswith(prefix) and stream.endswith(suffix)
    return JobId(stream.removeprefix(prefix).removesuffix(suffix)) if is_log else None


def model_stream(job: JobId) -> str:
    """Name of the registers' stream, which keeps one message per subject."""
    return f"EDL-{job}-MODEL"


def core_stream(job: JobId) -> str:
    """Name of the core snapshots' stream, which keeps one message per subject."""
    return f"EDL-{job}-CORE"


def payloads_stream(job: JobId) -> str:
    """Name of the stream with the data of large events."""
    return f"EDL-{job}-PAYLOADS"


def states_stream(job: JobId) -> str:
    """Name of the stream with large metric states."""
    return f"EDL-{job}-STATES"


def task_patterns(job: JobId) -> list[str]:
    """Subject patterns of the work queue's stream."""
    return [_join(job, "task") + ".>"]


def event_patterns(job: JobId) -> list[str]:
    """Subject patterns of the event log's stream."""
    return [_join(job, "event") + ".>"]


def register_patterns(job: JobId) -> list[str]:
    """Subject patterns of the registers' stream."""
    return [_join(job, "model") + ".>", _join(job, RING), _join(job, PLACEMENT)]


def core_patterns(job: JobId) -> list[str]:
    """Subject patterns of the core snapshots' stream."""
    return [_join(job, "core") + ".>"]


def payload_patterns(job: JobId) -> list[str]:
    """Subject patterns of the stream with the data of large events."""
    return [_join(job, "payload") + ".>"]


def states_patterns(job: JobId) -> list[str]:
    """Subject patterns of the stream with large metric states."""
    return [_join(job, "states") + ".>"]


def task_consumer(purpose: Purpose, *, again: bool) -> str:
    """Name of the durable consumer of one subject of the work queue."""
    return f"{purpose.value}-again" if again else purpose.value
