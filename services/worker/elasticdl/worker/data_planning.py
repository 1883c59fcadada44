"""``python -m elasticdl.worker.data_planning``: plans the data of a job with the reader of its model file.

The launcher starts it before the job is planned, because only processes of workers run user code. It reads all records
once, as the launcher does with files.
"""

from __future__ import annotations

from pathlib import Path

from elasticdl.shared.data.custom import plan_reader
from elasticdl.shared.data.custom.exchange import PlanningRequest, write_planned
from elasticdl.shared.data.schema import DataSchema
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.worker.model_check import place, run_any


def _plan(folder: Path) -> ModelCheck:
    from elasticdl.layers import adapting
    from elasticdl.worker.model.adapted.adapter import ReaderAdapter
    from elasticdl.worker.model.user.data_reader import reader_of
    from elasticdl.worker.model.user.module import load
    from elasticdl.worker.model.user.randomness import seed_process

    request = PlanningRequest.read(folder)
    seed_process(request.seed)
    adapting.use(ReaderAdapter(Path(request.model)))
    module = load(ModelFile(path=Path(request.model), symbol=request.symbol, functions=request.functions))
    schema: DataSchema | None = None
    for number, spec in enumerate(request.readers):
        planned = plan_reader(reader_of(module, spec), spec, request.options, stride=request.stride, schema=schema)
        write_planned(folder, number, planned)
        schema = schema or planned.schema
    return ModelCheck()


def main() -> int:
    """Entry point."""
    folder, number = place()
    return run_any(lambda: _plan(folder), folder, number)


if __name__ == "__main__":
    leave(main())
