"""``python -m tests.histories.last_night``: run the job of the tutorial about a failure, and keep its exported log.

Three problems are planted: worker-1 is slow, ps-0 is killed twice, and one record can't be fed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from tests.e2e.elastic import Elastic, write_lines
from tests.e2e.models import LINEAR, write_model
from tests.histories.logs import read_log, write_log
from tests.histories.record import read_log_of
from tests.unit.views.recorded import Recorded, job_of

from elasticdl.views.files.exported_log import Header, export

FILE = Path(__file__).parents[2] / "docs/tutorials/last-night.edl"
"""The log, as ``elasticdl events export`` writes it."""
RECORDS = 64_000
POISONED = 60_321
"""The record that has a word where there should be a number."""
FEED_BATCH = """
def feed_batch(records, mode, metadata):
    tf.py_function(_look, [records["c"]], [])
    numbers = [tf.strings.to_number(records[name]) for name in ("a", "b", "c")]
    return tf.stack(numbers, axis=1), tf.strings.to_number(records["y"])


def _look(values):
    import os, time
    time.sleep(0.12 if os.environ.get("ELASTICDL_POD") == "worker-1" else 0.03)
    for value in values.numpy():
        try:
            float(value)
        except ValueError as error:
            raise ValueError(f"column c holds {value.decode()!r}, which is not a number") from error
"""


FLAGS = (
    "--model_def=fares.py",
    "--training_data=data",
    "--column_types=a=string,b=string,c=string,y=string",
    "--minibatch_size=64",
    "--num_minibatches_per_task=8",
    "--num_epochs=1",
    "--checkpoint_steps=40",
    "--num_workers=3",
    "--shuffle=none",
    "--job_name=fares",
    "--seed=1",
)


def _pid_of_ps(elastic: Elastic) -> int:
    pid: int = json.loads(elastic.run("status", elastic.job, "--json").output)["pods"]["ps-0"]["pid"]
    return pid


def main() -> None:
    """Entry point."""
    with tempfile.TemporaryDirectory() as folder:
        elastic = Elastic(folder=Path(folder))
        write_model(elastic.folder, LINEAR.split("def feed_batch")[0] + FEED_BATCH, "fares.py")
        lines = [f"{n % 7 / 7},{n % 5 / 5},{n % 3 / 3},{n % 7 / 7 + 2 * (n % 5) / 5 - n % 3}" for n in range(RECORDS)]
        lines[POISONED] = "0.5,0.5,unknown,1.0"
        write_lines(elastic.folder / "data/fares.csv", ["a,b,c,y", *lines])
        with elastic.start("train", *FLAGS) as running:
            running.wait_for_progress()
            for _ in range(2):
                killed = elastic.pid("ps-0")
                os.kill(killed, signal.SIGKILL)
                while _pid_of_ps(elastic) in (0, killed):
                    pass
            code = running.wait()
        sys.stdout.write(running.output)
        assert code == 1
        records = asyncio.run(read_log_of(elastic))
        hidden = Path(folder) / "hidden.log"
        write_log(hidden, (each.envelope for each in records), {folder: "/job", socket.gethostname(): "host"})
        records = list(read_log(hidden))
    header = Header(job=job_of(records), records=0, state="failed", message="")
    header = asyncio.run(export(Recorded(records), FILE, header, lambda envelope: envelope))
    sys.stdout.write(f"{FILE.name}: {header.records} records, {FILE.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
