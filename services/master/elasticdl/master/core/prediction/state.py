"""How far a prediction job has got."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.master.core.task_window import TaskWindow


@dataclass(slots=True, kw_only=True)
class Prediction:
    """The tasks that have predictions. The model does not change, so a result of any dispatch and any run counts.

    Attributes:
        window: which tasks were dispatched in this run of the job, and which have a file.
        files: task number -> name of the file that its first finished attempt has written; no other file counts.
        checksum: sum of the hashes of the data's records that they were predicted from, modulo 2**64.
    """

    window: TaskWindow = field(default_factory=TaskWindow)
    files: dict[int, str] = field(default_factory=dict)
    records: int = 0
    checksum: int = 0
