"""``python -m elasticdl.worker.model_export``: writes a version of a job's model to its output, without any ps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.owner import OutputOwner
from elasticdl.shared.job.spec import ExportTables, JobSpec
from elasticdl.shared.model.matching import Match
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.model.whole_model import read_model
from elasticdl.shared.process import model_check
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.worker.execution.exporter import write_output
from elasticdl.worker.model_check import place, run, running_batches

if TYPE_CHECKING:
    from elasticdl.worker.model_builder import Built


def _export(spec: JobSpec, folder: Path, _number: int) -> ModelCheck:
    from elasticdl.worker.model_builder import build

    with running_batches(spec) as running:
        built = build(spec, running)
    _check_signature(built, folder, spec)
    dense, rows_of = read_model((folder / model_check.MODEL_FILE).read_bytes())
    found: list[str] = []
    if built.export_tables is ExportTables.PARQUET:
        parts = json.loads((folder / model_check.PARTS_FILE).read_text())
        built.with_tables(spec, dense, [(uri, tuple(map(tuple, ranges))) for uri, ranges in parts]).write(spec.output)
    else:
        write_output(spec.output, lambda output: found.extend(built.write(dense, rows_of, output)))
    OutputOwner(job=spec.job, started_s=spec.created_s).note(spec.output)
    return ModelCheck(notes=(*built.export_notes, *(found or built.loading_notes)))


def _check_signature(built: Built, folder: Path, spec: JobSpec) -> None:
    """Refuse a model file that has changed and makes other variables than the job has trained."""
    file = folder / model_check.SIGNATURE_FILE
    if not file.exists():
        return
    match = Match(new=built.runner.signature(), trained=ModelSignature.from_json(file.read_text()))
    if not match.is_same:
        raise UserError(
            f"{spec.model.path} makes another model than the one that job {spec.job} has trained. "
            f"{match.differences or 'Its variables have another order.'}",
            hint="The model file may change, but each variable must keep its name and shape.",
        )


if __name__ == "__main__":
    leave(run(_export, *place()))
