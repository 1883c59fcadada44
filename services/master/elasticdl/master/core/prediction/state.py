"""How far a prediction job has got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Prediction:
    """The tasks that have predictions. The model does not change, so a result of any dispatch and any run counts.

    Attributes:
        is_dispatched: whether the tasks that lack a file were dispatched in this run of the job.
        files: task number -> name of the file that its first finished attempt has written; no other file counts.
        records: records in these files.
        checksum: sum of the hashes of the data's records that they were predicted from, modulo 2**64.
    """

    is_dispatched: bool = False
    files: dict[int, str] = field(default_factory=dict)
    records: int = 0
    checksum: int = 0

    def missing(self, tasks: int) -> Iterator[tuple[int, int]]:
        """The tasks without a file, as ranges.

        Args:
            tasks: number of all tasks.
        """
        start = 0
        for done in (*sorted(self.files), tasks):
            if start < done:
                yield start, done
            start = done + 1
