"""The file of running batches outlives the process that wrote it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.running_batches import WorkerTraces


def test_it_survives_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "hand"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from elasticdl.shared.process.running_batches import RunningBatchesFile\n"
        "from elasticdl.shared.names import Purpose\n"
        "from elasticdl.shared.job.tasks import TaskRef\n"
        "hand = RunningBatchesFile(Path(sys.argv[1]))\n"
        "with hand.running(TaskRef(purpose=Purpose.TRAIN, number=7), 3):\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    child = subprocess.run([sys.executable, "-c", program, str(path)], check=False, capture_output=True, cwd=tmp_path)
    assert child.returncode < 0, child.stderr
    assert WorkerTraces.read(path).running_batches == (
        RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=7), batch=3),
    )
