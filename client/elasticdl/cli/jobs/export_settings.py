"""What ``elasticdl export`` writes."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What to export.

    Attributes:
        output: folder for the model; empty: that of the job.
        best: the best evaluated version, which a job with ``--save_best`` keeps.
        step: the version of this step; None: the newest one.
    """

    output: str = ""
    best: bool = False
    step: int | None = None

    def check(self) -> None:
        """Refuse settings that exclude each other.

        Raises:
            UserError: they do.
        """
        if self.best and self.step is not None:
            raise UserError("--best and --step can't be given together", usage=True)
