"""Memory of a statement by its number of rows: preparing a training, and predicting.

    python benchmarks/sql_rows.py --rows=5000000

Makes a DuckDB file with a table of so many rows. Prints the peak memory of a client that prepares a training on it, and
of the largest process of a prediction for 10,000 and for all of its rows.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import psutil

FEW = 10_000
TABLE = """
CREATE TABLE sales AS SELECT i AS id, hash(i) % 1000 / 10.0 AS price, hash(i + 1) % 50 AS pieces,
  ['north', 'south', 'east', 'west'][(hash(i + 2) % 4)::INT + 1] AS region, DATE '2020-01-01' + (i % 1500)::INT AS day,
  hash(i) % 1000 / 10.0 * (hash(i + 1) % 50) + hash(i + 3) % 100 AS paid
FROM range({rows}) AS t(i)
"""
PREPARE = """
import sys
from pathlib import Path
from elasticdl.sql.databases import open_database
from elasticdl.sql.parsing import parse_one
from elasticdl.sql.preparation import prepare_training
statement = parse_one("SELECT * FROM sales LABEL paid INTO m").statement
prepare_training(statement, open_database(sys.argv[1]), Path(sys.argv[2]), say=print)
"""


def peaks_mib(command: list[str]) -> tuple[float, float, float]:
    """Peak memory of a process, and of the largest process below it; and its seconds."""
    started_s, own, below = time.monotonic(), 0.0, 0.0
    with tempfile.TemporaryFile("w+") as output:
        process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            own = max(own, _peak_mib(process.pid))
            below = max([below, *(_peak_mib(each.pid) for each in process.children(recursive=True))])
            time.sleep(0.1)
        if process.returncode:
            output.seek(0)
            raise SystemExit(output.read())
    return own, below, time.monotonic() - started_s


def _peak_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measure(Path(folder), arguments.rows)


def measure(folder: Path, rows: int) -> None:
    file = folder / "sales.duckdb"
    with duckdb.connect(str(file), config={"memory_limit": "1GB"}) as connection:
        connection.execute(TABLE.format(rows=rows))
    for number in (FEW, rows):
        (folder / f"work-{number}").mkdir()
        small = folder / f"sales-{number}.duckdb"
        if number == rows:
            small = file
        else:
            with duckdb.connect(str(small)) as connection:
                connection.execute(TABLE.format(rows=number))
        prepare = [sys.executable, "-c", PREPARE, str(small), str(folder / f"work-{number}")]
        own, _, seconds = peaks_mib(prepare)
        show(f"prepare {number:,} rows: {own:.0f} MiB in the client, {seconds:.0f} s")
    sql = [sys.executable, "-m", "elasticdl.cli", "sql", f"--run_dir={folder / 'jobs'}", f"--database={file}", "-e"]
    few = f"SELECT * FROM sales LIMIT {FEW}"
    peaks_mib([*sql, f"{few} LABEL paid INTO m WITH num_epochs = 1"])
    for number, query in ((FEW, few), (rows, "SELECT * FROM sales")):
        predict = f"{query} TO PREDICT guesses USING m WITH minibatch_size = 1024"
        own, below, seconds = peaks_mib([*sql, predict])
        largest = f"{below:.0f} MiB in the largest process of the job"
        show(f"predict {number:,} rows: {own:.0f} MiB in the client, {largest}, {seconds:.0f} s")


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
