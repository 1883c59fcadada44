"""Memory and start-up of a script that gives arrays of several GiB to ``fit()``, beside a copy of them to the disk.

    python -m benchmarks.large_arrays [--gib 4] [--workers 4]

Runs the script with 32 MiB, then with all of it. The memory is the largest sum of the proportional set sizes (PSS)
of all processes. Start-up is the time from the call of ``fit()`` to the first worker that has built its model;
``after_write_s`` is the part of it after the last byte of the arrays was written. The copy
is that of the same array by NumPy to the disk (fsync), just before in the same process. Prints one line of
JSON for each size.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_MIB = 1 << 20
_SCRIPT = """
import os
import sys
import time

import keras
import numpy as np

records = int(float(sys.argv[1]) * 2**18)
x = np.empty((records, 1024), np.float32)
for start in range(0, records, 65536):
    np.random.default_rng(start).random(out=x[start : start + 65536], dtype=np.float32)
y = (x[:, 0] > 0.5).astype(np.float32)
model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile(optimizer="adam", loss="binary_crossentropy")
for _ in range(2):  # The first one brings the pages for all others from the host.
    started = time.time()
    with open(sys.argv[2], "wb") as file:
        x.tofile(file)
        os.fsync(file.fileno())
    copied_s = time.time() - started
    os.remove(sys.argv[2])
print("RESULT", copied_s, time.time(), flush=True)
model.fit(x, y, batch_size=1024)
"""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    for gib in (1 / 32, given.gib):
        print(json.dumps(measured(gib, given.workers)), flush=True)


def measured(gib: float, workers: int) -> dict[str, float]:
    """What one run needs, in seconds and MiB."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        script, copy, jobs = Path(folder, "script.py"), Path(folder, "copy"), Path(folder, "jobs")
        script.write_text(_SCRIPT)
        run = ["run", f"--num_workers={workers}", f"--run_dir={jobs}", str(script), str(gib), str(copy)]
        process = psutil.Popen([sys.executable, "-m", "elasticdl.cli", *run], stdout=subprocess.PIPE, text=True)
        memory_mib = max(_memory_mib(process))
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("RESULT"))
        copied_s, called_s = map(float, line.split()[1:])
        (job,) = (each.name for each in jobs.iterdir() if each.is_dir())
        read = [
            sys.executable,
            "-m",
            "elasticdl.cli",
            "events",
            job,
            f"--run_dir={jobs}",
            "--json",
            "--type=WorkerStarted",
        ]
        first = json.loads(subprocess.run(read, check=True, capture_output=True, text=True).stdout.splitlines()[0])
        return {
            "gib": gib,
            "copy_s": copied_s,
            "start_up_s": first["time_s"] - called_s,
            "after_write_s": first["time_s"] - (jobs / job / "data" / "training.npz").stat().st_mtime,
            "memory_mib": memory_mib,
        }


def _memory_mib(process: psutil.Popen) -> Iterator[float]:
    """The memory of a process and all below it, twice a second until it ends."""
    while process.poll() is None:
        total = 0
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += each.memory_full_info().pss
        yield total / _MIB
        time.sleep(0.5)


if __name__ == "__main__":
    main()
