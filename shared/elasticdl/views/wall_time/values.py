"""Where the wall time of a job went, as values and as JSON; ``fold`` finds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from elasticdl.shared.names import JobId
from elasticdl.views.wall_time.causes import USEFUL, WORDS, Cause


class Phase(Enum):
    """A stage of a job, in the order in which a run has them."""

    PREPARING = "preparing"
    STARTING = "starting"
    TRAINING = "training"
    CLOSING = "closing"
    ENDED = "ended"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the wall time; ``evidence``: numbers of events that prove it, with the seconds that each stands for."""

    cause: Cause
    seconds: float
    evidence: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """A stage of the job on its critical path; ``seq``: the event that began it. Times are seconds since 1970."""

    phase: Phase
    started_s: float
    ended_s: float
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTime:
    """The wall time of a job until one moment.

    Attributes:
        parts: by cause, the longest first; they sum to ``wall_s``.
        path: the stages one after the other; they sum to ``wall_s``, too.
    """

    job: JobId
    wall_s: float
    parts: tuple[Part, ...]
    path: tuple[PhaseTime, ...]

    @property
    def useful_s(self) -> float:
        """Seconds that the job was there for."""
        return sum(part.seconds for part in self.parts if part.cause in USEFUL)

    def percent(self, seconds: float) -> float:
        """Seconds as a part of the wall time."""
        return 100.0 * seconds / self.wall_s if self.wall_s else 0.0


def wall_time_facts(found: WallTime) -> dict[str, Any]:
    """The wall time as JSON values."""
    return {
        "job": found.job,
        "wall_s": round(found.wall_s, 6),
        "useful_s": round(found.useful_s, 6),
        "parts": [
            {
                "cause": part.cause.value,
                "title": WORDS[part.cause].title,
                "useful": part.cause in USEFUL,
                "seconds": round(part.seconds, 6),
                "percent": round(found.percent(part.seconds), 3),
                "evidence": [{"seq": seq, "seconds": round(seconds, 6)} for seq, seconds in part.evidence],
                "advice": WORDS[part.cause].advice,
            }
            for part in found.parts
        ],
        "path": [
            {"phase": each.phase.value, "seconds": round(each.ended_s - each.started_s, 6), "seq": each.seq}
            for each in found.path
        ],
    }


def wall_time_to_plain(found: WallTime) -> dict[str, Any]:
    """The wall time as JSON values from which ``wall_time_of_plain`` makes it again, without rounding."""
    return {
        "job": found.job,
        "wall_s": found.wall_s,
        "parts": [(part.cause.value, part.seconds, part.evidence) for part in found.parts],
        "path": [(each.phase.value, each.started_s, each.ended_s, each.seq) for each in found.path],
    }


def wall_time_of_plain(values: Mapping[str, Any]) -> WallTime:
    """Inverse of ``wall_time_to_plain``. Raises ``ValueError``, ``LookupError`` or ``TypeError`` for other values."""
    parts = tuple(
        Part(cause=Cause(cause), seconds=seconds, evidence=tuple((seq, each_s) for seq, each_s in evidence))
        for cause, seconds, evidence in values["parts"]
    )
    path = tuple(
        PhaseTime(phase=Phase(phase), started_s=started_s, ended_s=ended_s, seq=seq)
        for phase, started_s, ended_s, seq in values["path"]
    )
    return WallTime(job=JobId(values["job"]), wall_s=values["wall_s"], parts=parts, path=path)
