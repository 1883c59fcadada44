"""Seconds that the export of a long log takes, and ``why`` of it, and CPU microseconds for each event.

    python -m benchmarks.export [--tasks 100000] [--workers 16] [--rounds 3] [--tree FOLDER]

Writes the log of a job with that many tasks to a nats-server of its own, with the core snapshots of its master, then
exports it, each time in a process of its own; then that file, to another one; then finds where the time of the log on
the server went, twice; then folds three quarters of it. ``--tree`` measures another checkout in turns with this one.
Prints a line of JSON for each: the CPU time is that of the process and its children, without the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.views import HERE, as_installed

if TYPE_CHECKING:
    from elasticdl.cli.jobs.handle import Condition
    from elasticdl.shared.bus.ports import JobReader
    from elasticdl.shared.messages.events import LogRecord

JOB = "long-log-000000"
AT_ONCE = 256
EPOCHS = 10
"""Of the job: with a thousand of them its state, and so a core snapshot, is large."""
SNAPSHOT_RECORDS = 5_000
"""Records between two core snapshots, as the master's setting has it."""


async def publish(url: str, tasks: int, workers: int) -> int:
    """Append the log to the server's, and its core snapshots; returns how many events it has."""
    from tests.histories.long import long_log
    from tests.histories.snapshots import keep_snapshots

    from elasticdl.shared.bus import subjects
    from elasticdl.shared.bus.nats_bus import connect
    from elasticdl.shared.bus.nats_bus.publications import Publication
    from elasticdl.shared.names import JobId, Service

    job = JobId(JOB)
    async with await connect(url, job) as bus:
        connection, payloads = bus.log._connection, bus.log._payloads

        async def publication(record: LogRecord) -> Publication:
            envelope, stored = record.envelope, await payloads.store(record.envelope)
            is_master = envelope.service is Service.MASTER
            subject = subjects.decision(job) if is_master else subjects.event(job, envelope.service, envelope.name)
            headers = {"Nats-Msg-Id": stored.id} | ({"Elasticdl-Payload": stored.payload} if stored.payload else {})
            return Publication(subject=subject, payload=stored.data, headers=headers)

        written = 0
        for records in _in_groups(long_log(tasks, workers, epochs=EPOCHS)):
            messages = [await publication(record) for record in records]
            await connection.store_all(subjects.events_stream(job), messages)
            written += len(messages)
        await keep_snapshots(bus.core_snapshots, long_log(tasks, workers, epochs=EPOCHS), SNAPSHOT_RECORDS)
        return written


def _in_groups(records: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    rest = iter(records)
    while group := list(islice(rest, AT_ONCE)):
        yield group


async def one_export(source: str, path: Path) -> None:
    """Export a log from a server, or from a file."""
    from elasticdl.cli.commands.exporting import export_log
    from elasticdl.shared.bus.nats_bus import connect
    from elasticdl.shared.names import JobId
    from elasticdl.views.files.exported_log import ExportedJob, ExportedLog, Header

    header = Header(job=JobId(JOB), records=0, state="training", running=True)

    async def written(job: JobReader) -> None:
        is_former = "log" in signature(export_log).parameters  # Of another checkout.
        taken: Any = job.log if is_former else job
        await export_log(taken, path, header, None)

    if not source.startswith("nats://"):
        await written(ExportedJob(ExportedLog(Path(source))))
        return
    async with await connect(source, JobId(JOB)) as bus:
        await written(bus)


class JobOnServer:
    """See ``ReadableJob``."""

    job = JOB
    arguments = JOB

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def open(self) -> AsyncIterator[JobReader]:
        """See ``ReadableJob``."""
        from elasticdl.shared.bus.nats_bus import connect
        from elasticdl.shared.names import JobId

        async with await connect(self._url, JobId(JOB)) as bus:
            yield bus

    def condition(self) -> Condition:
        """See ``ReadableJob``."""
        from elasticdl.cli.jobs.handle import Condition

        return Condition(is_running=False, state="interrupted")


def one_why(url: str, path: Path) -> None:
    """Write where the time of the log on a server went, and read it again if that is kept."""
    from elasticdl.cli.jobs.folded import wall_time
    from elasticdl.views.wall_time.values import wall_time_facts

    found, texts = wall_time(JobOnServer(url))  # type: ignore[arg-type]
    path.write_text(json.dumps([wall_time_facts(found), *texts.values()]))


def one_replay(url: str, until: int) -> None:
    """Fold the log on a server until a record, as ``replay --until`` does."""
    from elasticdl.cli.jobs.folded import recovered

    found = recovered(JobOnServer(url), until)  # type: ignore[arg-type]
    assert found.read_seq == until


def measure(tree: Path, what: str, source: str, path: Path, events: int) -> dict[str, object]:
    """Do one thing with a checkout, in a process of its own."""
    program = [sys.executable, __file__, "--do", what, source, str(path)]
    environment = as_installed(tree, path.parent / "compiled") | {"XDG_CACHE_HOME": str(path.parent / tree.name)}
    began_s, before = time.monotonic(), os.times()
    subprocess.run(program, env=environment, cwd=tree, check=True)
    after, seconds = os.times(), time.monotonic() - began_s
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    facts = {"seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2), "us_per_event": round(1e6 * seconds / events, 1)}
    return {
        "tree": str(tree),
        "what": what,
        "from": source.partition("://")[0],
        **facts,
        "bytes": path.stat().st_size if path.exists() else 0,
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--do", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.do:
        what, source, path = arguments.do
        if what == "export":
            asyncio.run(one_export(source, Path(path)))
        elif what == "why":
            one_why(source, Path(path))
        else:
            one_replay(source, int(what))
        return
    from elasticdl.shared.bus.server import NatsServer

    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder) / "nats")
        try:
            url = server.start()
            events = asyncio.run(publish(url, arguments.tasks, arguments.workers))
            exported, again, why = (Path(folder) / name for name in ("long.edl", "again.edl", "why.json"))
            nothing = Path(folder) / "nothing"
            tasks = (
                ("export", url, exported),
                ("export", str(exported), again),
                ("why", url, why),
                ("why", url, why),
                (str(events * 3 // 4), url, nothing),
            )
            for _ in range(arguments.rounds):
                for tree in (each.resolve() for each in (arguments.tree, HERE) if each):
                    shutil.rmtree(Path(folder) / tree.name, ignore_errors=True)  # What ``why`` has kept.
                    for what, source, path in tasks:
                        facts = measure(tree, what, source, path, events)
                        sys.stdout.write(json.dumps({"events": events, **facts}) + "\n")
                        sys.stdout.flush()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
