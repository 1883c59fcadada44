"""Seconds that the commands which look at a job need on a long log, and CPU microseconds for each event.

    python -m benchmarks.views [--tasks 100000] [--workers 16] [--tree FOLDER]

Writes an exported log of a job with that many tasks, then runs each command on it as a process of its own.
Prints a line of JSON for each command. ``--tree`` measures another checkout on the same file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PORTIONS = (".", "shared", "client", "services/master", "services/worker", "services/ps", "services/controller")
COMMANDS = (
    ("events", "--until=1"),
    ("status",),
    ("tasks",),
    ("tasks", "--slowest=10"),
    ("task", "17"),
    ("why",),
    ("why",),
    ("replay",),
)


def write_log(path: Path, tasks: int, workers: int, epochs: int = 0) -> int:
    """Write the file; returns how many events it has."""
    from tests.histories.long import long_log

    from elasticdl.shared.messages import codec
    from elasticdl.shared.messages.codec import Decode
    from elasticdl.shared.messages.events import Envelope, LogRecord
    from elasticdl.views.files.exported_log import Header, export

    class Log:
        """See ``LogReader``. Its records are made twice, because those of a million tasks take gigabytes."""

        async def last_seq(self) -> int:
            return sum(1 for _ in long_log(tasks, workers, epochs=epochs))

        async def read(
            self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
        ) -> AsyncIterator[LogRecord]:
            del decode
            for record in islice(long_log(tasks, workers, epochs=epochs), after, until or None):
                yield record

    def unchanged(envelope: Envelope) -> Envelope:
        return envelope

    log = Log()
    opening = next(long_log(tasks, workers, epochs=epochs)).envelope.event
    header = Header(job=opening.spec.job, records=0, state="training", running=True)  # type: ignore[union-attr]
    began_s = time.process_time()
    made = asyncio.run(log.last_seq())
    making_s = time.process_time() - began_s
    header = asyncio.run(export(log, path, header, unchanged))
    spent_s = time.process_time() - began_s - 3.0 * making_s
    assert made == header.records
    facts = {"what": "export", "seconds": round(spent_s, 2), "us_per_event": round(1e6 * spent_s / header.records, 1)}
    sys.stdout.write(json.dumps({**facts, "events": header.records, "bytes": path.stat().st_size}) + "\n")
    return header.records


def as_installed(tree: Path, compiled: Path) -> dict[str, str]:
    """The environment of a program of a checkout, with compiled modules in a folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(tree / portion) for portion in PORTIONS)}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def measure(tree: Path, path: Path, command: tuple[str, ...], scratch: Path) -> dict[str, object]:
    """Run one command; ``scratch``: a folder for what it keeps."""
    # Nothing is kept of earlier runs.
    environment = as_installed(tree, scratch / "compiled") | {"XDG_CACHE_HOME": str(scratch / "cache")}
    name, *more = command
    program = [sys.executable, "-m", "elasticdl.cli", name, str(path), *more]
    began_s, before = time.monotonic(), os.times()
    subprocess.run(program, env=environment, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return {"what": " ".join(command), "seconds": round(time.monotonic() - began_s, 2), "cpu_s": round(cpu_s, 2)}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--file", type=Path, help="use this file again, or keep it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "long.edl"
        if not path.exists():
            write_log(path, arguments.tasks, arguments.workers)
        for number, tree in enumerate(each.resolve() for each in (arguments.tree, HERE) if each):
            scratch = Path(folder) / str(number)
            measure(tree, path, COMMANDS[0], scratch)  # Compiles the modules.
            for command in COMMANDS:
                sys.stdout.write(json.dumps({"tree": str(tree), **measure(tree, path, command, scratch)}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
