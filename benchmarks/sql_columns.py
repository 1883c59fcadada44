"""A training on a table of many columns, to its end.

    python benchmarks/sql_columns.py --columns=2000

Makes a DuckDB file whose columns are numbers, and a tenth of them texts; two numbers decide the label. Prints the
seconds of the statement, the CPU seconds of the command and what it waited for, and the R2 of the rows for validation.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

ROWS = 4_000
LABEL = "3 * c1 + 2 * c2 + random() / 10"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", type=int, default=2_000)
    columns = parser.parse_args().columns
    numbers = ", ".join(f"random() * {number % 7 + 1} - 1 AS c{number}" for number in range(columns - columns // 10))
    texts = "".join(f", chr(97 + (random() * 5)::INT) AS t{number}" for number in range(columns // 10))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wide.duckdb"
        with duckdb.connect(str(file)) as connection:
            connection.execute(f"CREATE TABLE facts AS SELECT {numbers}{texts} FROM range({ROWS})")
            connection.execute(f"CREATE TABLE wide AS SELECT *, {LABEL} AS y FROM facts")
            connection.execute("DROP TABLE facts")
        train(folder, file, columns)


def train(folder: str, file: Path, columns: int) -> None:
    command = [sys.executable, "-m", "elasticdl.cli", "sql", "--json", f"--run_dir={folder}/jobs", f"--database={file}"]
    started_s = time.monotonic()
    statement = "SELECT * FROM wide LABEL y INTO wide_model"
    done = subprocess.run([*command, "-e", statement], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds, used = time.monotonic() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    r2 = json.loads(done.stdout)["results"][0]["metrics"]["r2"]
    sys.stdout.write(
        f"{columns:,} columns, {ROWS:,} rows: {seconds:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU, "
        f"R2 {r2:.3f} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)\n"
    )


if __name__ == "__main__":
    main()
