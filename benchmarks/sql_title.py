"""The statement of the README: its seconds, and its R2 beside that of gradient-boosted trees on the same split.

    python benchmarks/sql_title.py

Needs scikit-learn. Models, caches and jobs are in a temporary folder. Also prints the seconds of ``SHOW MODELS`` and of
parsing and checking a statement, and the load of the machine.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score

from elasticdl.shared.words import count
from elasticdl.sql.attributes import check_attributes
from elasticdl.sql.parsing import parse_one
from elasticdl.sql.shipped import shipped_tables
from elasticdl.sql.snapshot import Split, write
from elasticdl.sql.statements import Train

TITLE = "SELECT * FROM employee LABEL income INTO my_elasticdl_model"
LONG = (
    "SELECT age, education, department, position, onboard_date, income FROM employee WHERE age > 20 TO TRAIN "
    "DNNRegressor WITH model.hidden_units = [64, 32], num_epochs = 4, num_workers = 2, validation.split = 0.1 "
    "COLUMN BUCKETIZE(age, 10), EMBEDDING(position, 4), * LABEL income INTO m"
)
SHOWN, PARSED = 5, 200


def main() -> None:
    """See the module."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            os.environ[name] = str(Path(folder) / name)
        ended, seconds = run(folder, TITLE)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime
        reached = ended["metrics"]["r2"]
        shows = [run(folder, "SHOW MODELS")[1] for _ in range(SHOWN)]
        trees = r2_of_trees(Path(folder))
    load = os.getloadavg()[0]
    show(f"load {load:.1f} on {count(os.cpu_count() or 1, 'core')}")
    show(f"{TITLE}: {seconds:.1f} s, {cpu_s:.1f} s of CPU by the command and what it waited for")
    show(f"R2 {reached:.4f}, of gradient-boosted trees {trees:.4f}: {reached / trees:.3f} of it")
    show(f"SHOW MODELS: {statistics.median(shows):.2f} s (median of {SHOWN})")
    parse_one(LONG)  # Loads the parser.
    started_s = time.process_time()
    for _ in range(PARSED):
        statement = parse_one(LONG).statement
        assert isinstance(statement, Train)
        assert not check_attributes(statement).faults
    show(f"parsing and checking a statement: {(time.process_time() - started_s) / PARSED * 1e3:.2f} ms of CPU")
    assert "tensorflow" not in sys.modules


def run(folder: str, statement: str) -> tuple[dict[str, Any], float]:
    """The result of a statement, and its seconds."""
    command = [sys.executable, "-m", "elasticdl.cli", "sql", "--json", f"--run_dir={folder}/jobs", "-e", statement]
    started_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started_s
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)["results"][0]
    return result, seconds


def r2_of_trees(folder: Path) -> float:
    """R2 of trees on the rows that the statement validates on, trained on those that it trains on."""
    rows = pq.read_table(shipped_tables()["employee"])
    whole, split = write(rows.to_batches(), rows.schema, folder / "rows.parquet"), Split(share=0.2)
    sides = []
    for is_validation in (False, True):
        part = whole.part(folder / f"{is_validation}.parquet", split, validation=is_validation)
        sides.append(pq.read_table(part.file))
    (x, y), (x_test, y_test) = (features(side, rows) for side in sides)
    trees = HistGradientBoostingRegressor(random_state=1).fit(x, y)
    return float(r2_score(y_test, trees.predict(x_test)))


def features(side: pa.Table, rows: pa.Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All columns but id, name and the label as numbers: of texts their place among the values of all rows."""
    columns = []
    for name in side.column_names:
        if name in ("id", "name", "income"):
            continue
        values = side.column(name)
        if pa.types.is_list(values.type):
            known = sorted({each for row in rows.column(name).to_pylist() for each in row})
            columns += [np.array([float(one in row) for row in values.to_pylist()]) for one in known]
        elif pa.types.is_string(values.type):
            places = {each: place for place, each in enumerate(sorted(set(rows.column(name).to_pylist()), key=str))}
            columns.append(np.array([float(places[each]) for each in values.to_pylist()]))
        elif pa.types.is_date(values.type):
            columns.append(values.cast(pa.int32()).to_numpy().astype(float))
        else:
            columns.append(values.cast(pa.float64()).to_numpy())
    return np.stack(columns, axis=1), side.column("income").to_numpy()


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
