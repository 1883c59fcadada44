"""What ``elasticdl resume`` changes of a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeChanges:
    """What a resume changes; 0 and empty: nothing.

    Attributes:
        ps: number of parameter servers.
        epochs: number of epochs in total.
        output: URI of the folder for the exported model.
        rebuild_bus: whether the streams of the job are replaced by what its snapshots say.
    """

    ps: int = 0
    epochs: int = 0
    output: str = ""
    rebuild_bus: bool = False
