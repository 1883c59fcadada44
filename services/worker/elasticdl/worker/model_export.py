"""``python -m elasticdl.worker.model_export``: writes a version of a job's model to its output, without any ps."""

from __future__ import annotations

import json
from pathlib import Path

from elasticdl.shared.job.spec import ExportTables, JobSpec
from elasticdl.shared.model.whole_model import read_model
from elasticdl.shared.process import model_check
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.worker.execution.exporter import write_output
from elasticdl.worker.model_check import place, run, running_batches


def _export(spec: JobSpec, folder: Path, _number: int) -> ModelCheck:
    from elasticdl.worker.model_builder import build

    with running_batches(spec) as running:
        built = build(spec, running)
    dense, rows_of = read_model((folder / model_check.MODEL_FILE).read_bytes())
    if built.export_tables is ExportTables.PARQUET:
        parts = json.loads((folder / model_check.PARTS_FILE).read_text())
        built.with_tables(spec, dense, [(uri, tuple(map(tuple, ranges))) for uri, ranges in parts]).write(spec.output)
    else:
        write_output(spec.output, lambda output: built.write(dense, rows_of, output))
    return ModelCheck(notes=built.export_notes)


if __name__ == "__main__":
    leave(run(_export, *place()))
