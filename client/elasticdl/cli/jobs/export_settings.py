"""What ``elasticdl export`` writes."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import ExportTables, JobSpec
from elasticdl.shared.model.signature import ModelSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What to export.

    Attributes:
        output: folder for the model; empty: that of the job.
        best: the best evaluated version, which a job with ``--save_best`` keeps.
        step: the version of this step; None: the newest one.
        tables: where the tables are, value of an ``ExportTables``; empty: as the job was submitted.
    """

    output: str = ""
    best: bool = False
    step: int | None = None
    tables: str = ""

    def check(self) -> None:
        """Refuse settings that exclude each other."""
        if self.best and self.step is not None:
            raise UserError("--best and --step can't be given together", usage=True)
        if self.best and self.tables == ExportTables.PARQUET.value:
            raise UserError(
                "--best and --export_tables=parquet can't be given together: the best model is saved as a whole",
                usage=True,
            )

    def tables_of(self, spec: JobSpec, signature: ModelSignature) -> ExportTables:
        """Where the tables of the exported model are: ``MODEL`` or ``PARQUET``."""
        choice = ExportTables(self.tables) if self.tables else spec.export_tables
        is_large = not signature.fits(spec.limits.export_bytes_max)
        wanted = choice is ExportTables.PARQUET or (choice is ExportTables.AUTO and is_large)
        return ExportTables.PARQUET if wanted and signature.tables and not self.best else ExportTables.MODEL
