"""Points in an event log as people name them, and which records they ask for. Pure.

A point is the number of a record (``355``), a time (``17:51:36``, ``2026-11-23T17:51:36``, ``+90s`` after the first
record), or an event (``first WorkerLost``, ``last PodExited``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.options import Seconds
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import Envelope, Event, ExitCause, LogRecord
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.words import did_you_mean
from elasticdl.views.records import value_text

TYPES: Mapping[str, type] = {each.__name__: each for each in get_args(Event)}
ORDERED_ENDS = frozenset({ExitCause.FINISHED, ExitCause.STOPPED})
"""Causes of exits that the job has ordered, or that were the end of the work."""
_TIME = re.compile(r"(?:(\d{4}-\d{2}-\d{2})[T ])?(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)")
_PROCESS_FIELDS = ("pod", "ps", "donor", "recipient", "process", "guilty")
_PROCESSES = ("worker", "ps", "pod", "process")
"""Keys of ``--where`` that name a process: records that it has sent, or that are about it."""
_FIELDS = frozenset(
    field.name for kind in (*get_args(Event), *get_args(commands.Command)) for field in dataclasses.fields(kind)
)
_KEYS = frozenset({*_PROCESSES, "name", "service", *_FIELDS})


def _is_lost(service: Service) -> Callable[[Event], bool]:
    return lambda event: (
        isinstance(event, events.PodExited) and event.service is service and event.cause not in ORDERED_ENDS
    )


MOMENTS: Mapping[str, Callable[[Event], bool]] = {
    "WorkerLost": _is_lost(Service.WORKER),
    "PsLost": _is_lost(Service.PS),
    "MasterLost": lambda event: isinstance(event, events.TermStarted) and event.term > 1,
    "JobEnded": lambda event: isinstance(event, RunMeasured) and event.ended_s > 0,
}
"""Words for what several types of events, or only some of one type, tell."""


def is_type(name: str) -> Callable[[Event], bool]:
    """Whether an event is of a type, or tells of a moment, by its name in any case.

    Raises:
        UserError: there is no such type.
    """
    names = {known.lower(): known for known in (*TYPES, *MOMENTS)}
    known = names.get(name.lower())
    if known is None:
        hint = did_you_mean(name, names.values(), f"The types are {', '.join(sorted(names.values()))}.")
        raise UserError(f"{name} is not a type of event", hint=hint, usage=True)
    if known in MOMENTS:
        return MOMENTS[known]
    kind = TYPES[known]
    return lambda event: any(isinstance(each, kind) for each in (event, *events.one_by_one(event)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point in a log, by one of its attributes.

    Attributes:
        text: as it was given.
        seq: the number of a record; 0: not by number.
        after_s: seconds after the first record.
        day, clock: local date (empty: that of the first record, or the next day) and time of day.
        event: the event, by its name; ``is_last``: the last one of them.
    """

    text: str
    seq: int = 0
    after_s: float | None = None
    day: str = ""
    clock: str = ""
    event: str = ""
    is_last: bool = False

    @classmethod
    def of(cls, flag: str, text: str) -> Point:
        """The point that the value of a flag names. Raises ``UserError``: it names none."""
        given = " ".join(text.split())
        if re.fullmatch(r"#?\d+", given) and int(given.lstrip("#")) > 0:
            return cls(text=given, seq=int(given.lstrip("#")))
        if given.startswith("+"):
            try:
                return cls(text=given, after_s=float(Seconds(given[1:])))
            except ValueError as error:
                raise _no_point(flag, text) from error
        if time := _TIME.fullmatch(given):
            return cls(text=given, day=time[1] or "", clock=time[2])
        which, _, name = given.partition(" ")
        if which.lower() in ("first", "last") and name:
            is_type(name)
            return cls(text=given, event=name, is_last=which.lower() == "last")
        raise _no_point(flag, text)

    def find(self, records: Iterable[LogRecord], *, is_end: bool) -> int:
        """The number of the record that this point means.

        Args:
            is_end: of a time: the last record until then; otherwise the first one since then.

        Returns:
            0: the log has no such record.
        """
        if self.seq:
            return self.seq
        if self.event:
            return self._find_event(records)
        limit_s: float | None = None
        before = 0
        for record in records:
            if limit_s is None:
                limit_s = self.time_s(record.envelope.time_s)
            if record.envelope.time_s > limit_s or (record.envelope.time_s == limit_s and not is_end):
                return before if is_end else record.seq
            before = record.seq
        return before if is_end else 0

    def _find_event(self, records: Iterable[LogRecord]) -> int:
        found, matches = 0, is_type(self.event)
        for record in records:
            if matches(record.envelope.event):
                found = record.seq
                if not self.is_last:
                    break
        return found

    def time_s(self, first_s: float) -> float:
        """The time of the point; ``first_s``: that of the first record. Both are seconds since 1970."""
        if self.after_s is not None:
            return first_s + self.after_s
        first = datetime.fromtimestamp(first_s)
        clock = self.clock if len(self.clock.split(":")[0]) == 2 else f"0{self.clock}"
        try:
            point = datetime.fromisoformat(f"{self.day or first.date()}T{clock}")
        except ValueError as error:
            raise UserError(f"{self.text} is not a time of day or a date that exists", usage=True) from error
        if not self.day and point + timedelta(seconds=1) < first:
            point += timedelta(days=1)
        return point.timestamp()


def _no_point(flag: str, text: str) -> UserError:
    return UserError(
        f"--{flag}={text} is not a point in an event log",
        hint="Give the number of an event (355), a time (17:51:36, 2026-11-23T17:51:36, +90s after the first event), "
        'or "first" or "last" and a type of event ("first WorkerLost").',
        usage=True,
    )


def condition(text: str) -> Callable[[Envelope], bool]:
    """What a value of ``--where`` asks for: ``worker=worker-3``, ``task=train 17``, ``cause=preempted``.

    Raises:
        UserError: it is no condition, or no event has such a field.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise UserError(
            f"--where={text} is not a condition", hint="Write FIELD=VALUE, such as worker=worker-3.", usage=True
        )
    if key not in _KEYS:
        raise UserError(f"no event has a field {key}", hint=did_you_mean(key, sorted(_KEYS)), usage=True)
    if key in _PROCESSES:
        return lambda envelope: value in processes_of(envelope)
    if key == "name":
        return lambda envelope: envelope.name == value
    if key == "service":
        return lambda envelope: value in (envelope.service.value, _field(envelope.event, key))
    wanted = f"train {value}" if key == "task" and value.isdigit() else value
    return lambda envelope: any(_field(each, key) == wanted for each in _parts(envelope.event))


def processes_of(envelope: Envelope) -> set[PodName]:
    """The processes that a record is about: its sender, and those that it names."""
    named = (getattr(each, field, None) for each in _parts(envelope.event) for field in _PROCESS_FIELDS)
    return {envelope.name, *(PodName(each) for each in named if isinstance(each, str) and each)}


def _parts(event: Event) -> tuple[object, ...]:
    return event.commands if isinstance(event, events.Decided) else events.one_by_one(event)


def _field(part: object, key: str) -> str | None:
    value = getattr(part, key, None)
    return None if value is None else value_text(value)
