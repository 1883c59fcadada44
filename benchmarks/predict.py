"""Predictions of DeepFM by ``elasticdl predict`` and by one process with ``model.predict``: CPU time for each.

    python benchmarks/predict.py [--records 1000000] [--model_params "hidden=(64,32)"]

Both read Parquet and write Parquet. The job is measured with an exported model and with the snapshots of the training
job, whose tables stay on a ps; each with all records and with a tenth of them, so that the start (imports, compilation,
the check of the model) can be told apart. Prints one line of JSON for each: user and system CPU seconds of all
processes, and the records per CPU second between the two sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BATCH = 256
ONE_PROCESS = """
import sys
import keras, numpy as np, pyarrow as pa, pyarrow.parquet as pq
data, model, output, batch = sys.argv[1:]
table = pq.read_table(data)
features = {
    "numbers": np.stack([table[f"i{n}"].to_numpy().astype(np.float32) for n in range(1, 14)], axis=1),
    "categories": np.stack([table[f"c{n}"].to_numpy().astype(np.int64) for n in range(1, 27)], axis=1),
}
predictions = keras.saving.load_model(model, compile=False).predict(features, batch_size=int(batch), verbose=0)
pq.write_table(pa.table({"prediction": predictions[:, 0]}), output)
"""


def cpu_s(command: list[str]) -> float:
    """User and system seconds of a command and all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def elasticdl(*arguments: str) -> list[str]:
    """A command line of this package."""
    return [sys.executable, "-m", "elasticdl.cli", *arguments]


def main() -> None:
    """Generate data, train for a moment, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--model_params", default="hidden=(400,400,400)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="elasticdl-predict-"))
    os.environ["ELASTICDL_RUN_DIR"] = str(folder / "jobs")
    model = ("--model_def=deepfm.custom_model", f"--model_params={arguments.model_params}")
    sizes = (arguments.records // 10, arguments.records)
    try:
        for size in sizes:
            cpu_s(elasticdl("zoo", "data", "deepfm", str(folder / str(size)), f"--records={size}"))
        few = f"--training_data={folder / str(sizes[0])}/train"
        cpu_s(elasticdl("train", *model, few, f"--output={folder / 'out'}", "--minibatch_size=512", "--job_name=first"))
        for name in ("export", "one process", "job"):
            seconds = []
            for size in sizes:
                if name == "one process":
                    command = [sys.executable, "-c", ONE_PROCESS, *_paths(folder, size), str(BATCH)]
                else:
                    command = _job(folder, size, str(folder / "out") if name == "export" else "first", *model)
                seconds.append(cpu_s(command))
            rate = (sizes[1] - sizes[0]) / (seconds[1] - seconds[0])
            facts = {"what": name, "records": sizes, "cpu_s": [round(each, 1) for each in seconds]}
            print(json.dumps({**facts, "records_per_cpu_s": round(rate)}), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _paths(folder: Path, size: int) -> list[str]:
    return [str(folder / str(size) / "train"), str(folder / "out/model.keras"), str(folder / f"one-{size}.parquet")]


def _job(folder: Path, size: int, model: str, *flags: str) -> list[str]:
    output = folder / f"predictions-{Path(model).name}-{size}"
    data = f"--prediction_data={folder / str(size)}/train"
    batch = f"--minibatch_size={BATCH}"
    return elasticdl("predict", f"--model={model}", *flags, data, f"--output={output}", batch, "--num_workers=2")


if __name__ == "__main__":
    main()
