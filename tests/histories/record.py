"""``make histories``: run small real jobs with the local platform and keep their event logs."""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.models import SLOW, write_data, write_model
from tests.histories.logs import FOLDER, SUFFIX, replayed, write_log

from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import find
from elasticdl.shared.bus.reading import read_present
from elasticdl.shared.messages.events import LogRecord
from elasticdl.views.reading import verify

FLAGS = (
    "--model_def=model.py",
    "--training_data=data",
    "--minibatch_size=64",
    "--num_minibatches_per_task=32",
    "--num_epochs=2",
    "--seed=1",
)
RECORDS = 24_000


def plain(elastic: Elastic) -> None:
    """A job without trouble."""
    elastic.remove_delay()
    check_exact(elastic.train(*FLAGS))


def evaluation(elastic: Elastic) -> None:
    """A job with validation data and an exported model."""
    elastic.remove_delay()
    write_data(elastic.folder, records=500, name="validation/test.csv", seed=4)
    check_exact(elastic.train(*FLAGS, "--validation_data=validation", "--evaluation_steps=60", "--output=output"))


def worker_killed(elastic: Elastic) -> None:
    """A worker is killed."""
    _in_the_middle(elastic, lambda: elastic.kill("worker-0"), "worker-0.*[Rr]estart")


def ps_killed(elastic: Elastic) -> None:
    """A ps is killed."""
    _in_the_middle(elastic, lambda: elastic.kill("ps-0"), "ps-0.*[Rr]estart", "--num_ps_pods=2")


def master_killed(elastic: Elastic) -> None:
    """The master is killed."""
    _in_the_middle(elastic, lambda: elastic.kill("master"), "")


def scaled(elastic: Elastic) -> None:
    """The number of ps and of workers changes while the job trains."""
    _in_the_middle(elastic, lambda: elastic.run("scale", elastic.job, "--ps=2", "--workers=3"), "")


def resumed(elastic: Elastic) -> None:
    """A job is interrupted and resumed."""
    with elastic.start("train", *FLAGS) as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        running.wait()
    elastic.remove_delay()
    check_exact(elastic.run("resume", elastic.job))


def _in_the_middle(elastic: Elastic, action: Callable[[], object], expected: str, *flags: str) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *FLAGS, *flags, "--report", str(report)) as running:
        running.wait_for_progress()
        action()
        if expected:
            running.wait_for(expected)
        elastic.remove_delay()
        code = running.wait()
        assert code == 0, running.output


JOBS: dict[str, Callable[[Elastic], None]] = {
    "plain": plain,
    "evaluation": evaluation,
    "worker-killed": worker_killed,
    "ps-killed": ps_killed,
    "master-killed": master_killed,
    "scaled": scaled,
    "resumed": resumed,
}


def record(name: str) -> None:
    """Run a job, keep its log, and make sure that today's code decides as it did."""
    with tempfile.TemporaryDirectory() as folder:
        elastic = Elastic(folder=Path(folder))
        write_model(elastic.folder, SLOW)
        write_data(elastic.folder, records=RECORDS)
        JOBS[name](elastic)
        records = asyncio.run(read_log_of(elastic))
        path = FOLDER / f"{name}{SUFFIX}"
        write_log(path, (each.envelope for each in records), {folder: "/job", socket.gethostname(): "host"})
    verified = asyncio.run(verify(replayed(path)))
    assert not verified.differences, f"{name}: {verified.differences}"
    sys.stdout.write(f"{path.name}: {len(records)} records, {path.stat().st_size} bytes\n")
    sys.stdout.flush()


async def read_log_of(elastic: Elastic) -> list[LogRecord]:
    """The records of the only job."""
    async with open_bus(find(elastic.jobs, elastic.job)) as bus:
        return await read_present(bus.log)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.record", description="Record the logs of jobs.")
    parser.add_argument("names", nargs="*", help="which jobs; all by default")
    for name in parser.parse_args().names or JOBS:
        record(name)


if __name__ == "__main__":
    main()
