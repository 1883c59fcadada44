"""``python -m elasticdl.worker.model_check``: builds a job's model and tries one batch, before the job starts.

The launcher starts two processes of it. Both build the model. The first tries a batch, and compares its fingerprint
with the second's, so a model that comes out differently in each process is refused before the job starts. Each tries to
export one of the two files, the second the one that takes longer. The first matches the model that the job starts from.
If the job starts, both processes become workers, which have built their model already.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.errors import PermanentError, ProtocolError, TransientError, UserError
from elasticdl.shared.job.model_file import KERAS_FILE, SAVED_MODEL
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import decode_spec
from elasticdl.shared.process import model_check
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.exit_codes import EXIT_REFUSED, exit_code, leave, reason_of
from elasticdl.shared.process.fork_server import Handover
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.shared.process.running_batches import ENVIRONMENT_VARIABLE, RunningBatchesFile, file_of
from elasticdl.worker import main as worker
from elasticdl.worker.failures import of_start
from elasticdl.worker.model.user.calls import follow_user_code
from elasticdl.worker.model_imports import import_model_code
from elasticdl.worker.running_batches import RunningBatches
from elasticdl.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from elasticdl.worker.model_builder import Built

_SECOND_S_MAX = 30.0
"""Seconds to wait for the second process after the first one is done; without it, only the workers compare."""
_POLL_S = 0.02


def run(function: Callable[[JobSpec, Path, int], ModelCheck], folder: Path, number: int) -> int:
    """Call a function with the job, the folder for results and the number of this process, and write its result.

    Returns:
        0, or 1 when the model is refused; others: the function could not do its work.
    """
    return run_any(
        lambda: function(decode_spec((folder / model_check.SPEC_FILE).read_bytes()), folder, number), folder, number
    )


def run_any(function: Callable[[], ModelCheck], folder: Path, number: int) -> int:
    """As ``run``, for a function that takes no job."""
    import_model_code()
    follow_user_code(lambda phase: model_check.write_phase(folder, number, phase))
    try:
        result = function()
    except TransientError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code(error)
    except (UserError, PermanentError, ProtocolError) as error:
        ModelCheck(error=of_start(error).shown).write(folder, number)
        return EXIT_REFUSED
    except MemoryError as error:
        ModelCheck(error=reason_of(error)).write(folder, number)
        return EXIT_REFUSED
    finally:
        follow_user_code(None)
    result.write(folder, number)
    return EXIT_REFUSED if result.error else 0


def place() -> tuple[Path, int]:
    """The folder for results, and the number of this process."""
    return Path(os.environ[model_check.FOLDER_VARIABLE]), int(os.environ[model_check.NUMBER_VARIABLE])


def main() -> int:
    """Entry point."""
    folder, number = place()
    pipe = model_check.pipe_of(folder, number)
    handover = Handover(pipe) if pipe.exists() else None
    models: list[Built] = []

    def check(spec: JobSpec, folder: Path, number: int) -> ModelCheck:
        built = _build(spec, number)
        models.append(built)
        return _check(spec, built, folder) if number == 0 else _export(spec, built, folder)

    code = run(check, folder, number)
    if code or handover is None:
        return code
    environment = handover.wait()
    os.environ.clear()
    os.environ.update(environment)
    models[0].runner.forget()
    return worker.main(models[0])


@contextmanager
def running_batches(spec: JobSpec) -> Iterator[RunningBatches]:
    """Where the batch is recorded that this process is reading; the process ends itself if it hangs there."""
    with RunningBatchesFile(file_of(os.environ[ENVIRONMENT_VARIABLE], os.getpid())) as file:
        running = RunningBatches(file)
        watchdog = Watchdog(
            running,
            deadline_s=spec.limits.batch_deadline_s,
            folder=Path(spec.model.path).parent,
            say=lambda _: None,
            clock=SystemClock(),
        )
        watchdog.start()
        try:
            yield running
        finally:
            watchdog.stop()


def _build(spec: JobSpec, number: int) -> Built:
    from elasticdl.worker.model_builder import Adapting, build

    with running_batches(spec) as running:
        return build(spec, running, Adapting.WAITS if number else Adapting.ADAPTS)


def _check(spec: JobSpec, built: Built, folder: Path) -> ModelCheck:
    from elasticdl.worker.model.fingerprint.fingerprint import Fingerprint
    from elasticdl.worker.model.initial.conversion import prepare
    from elasticdl.worker.model_trial import try_model

    with running_batches(spec) as running:
        try_model(built, running)
    mine = built.fingerprint()
    trial = _try_export(spec, built, KERAS_FILE, folder, 0)
    other = _second(folder)
    if other is not None and other.fingerprint:  # Without one it failed by itself, and the workers compare.
        expected = Fingerprint.decode(other.fingerprint)
        mine.check(expected, Path(spec.model.path), "each process builds a different model")
    if problem := trial.error or (other.error if other else ""):
        return ModelCheck(error=problem)
    unloadable = (*trial.unloadable, *(other.unloadable if other else ()))
    loading = () if unloadable else built.loading_notes
    if spec.initial and spec.initial.file and not spec.initial.adapted and built.adapter:
        built.adapter.refuse_file(spec.initial.source)
    if spec.initial:
        model_check.begin_conversion(folder)
    initial = spec.initial and prepare(spec.initial, built.runner, spec.storage)
    return ModelCheck(
        notes=(*built.describe(), *built.export_notes, *loading, *built.callbacks.notes),
        unloadable=unloadable,
        fingerprint=mine.encode(),
        callbacks=built.callbacks.names,
        best=built.callbacks.best,
        tensorboard_log_dir=built.callbacks.tensorboard_log_dir,
        adapted=built.adapter.uris if built.adapter else (),
        initial=initial,
        export_tables=built.export_tables if spec.output and spec.prediction is None else None,
    )


def _export(spec: JobSpec, built: Built, folder: Path) -> ModelCheck:
    fingerprint = built.fingerprint().encode()
    return replace(_try_export(spec, built, SAVED_MODEL, folder, 1), fingerprint=fingerprint)


def _try_export(spec: JobSpec, built: Built, name: str, folder: Path, number: int) -> ModelCheck:
    """Why a file of the model can't be exported, or what to know about it; empty if no export is wanted."""
    from elasticdl.worker.model_trial import try_export

    output = spec.output if spec.prediction is None and not spec.export_weights else ""
    if not output and name == KERAS_FILE:
        output = built.callbacks.model_folder
    if not output:
        return ModelCheck()
    with model_check.trying_export(folder, number):
        try:
            return ModelCheck(unloadable=tuple(try_export(built, output, name)))
        except UserError as error:
            return ModelCheck(error=of_start(error).shown)


def _second(folder: Path) -> ModelCheck | None:
    """The result of the other process, which began at the same time; None if it takes too long or failed."""
    limit_s = time.monotonic() + _SECOND_S_MAX
    while time.monotonic() < limit_s:
        result = ModelCheck.read(folder, 1)
        if result is not None:
            return result
        time.sleep(_POLL_S)
    return None


if __name__ == "__main__":
    leave(main())
