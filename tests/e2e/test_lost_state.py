"""Jobs whose stored state suffered: the event log lost or cut short, snapshots damaged. Training stays exact."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.elastic import PROGRESS, Elastic, Outcome, check_exact
from tests.e2e.models import SLOW, write_data, write_model

from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.names import JobId

RECORDS = 8_000


@pytest.fixture
def job_flags(elastic: Elastic) -> list[str]:
    """Flags of a job of some seconds with metrics, which saves its state every few steps."""
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=RECORDS)
    return [
        "--model_def=model.py",
        "--training_data=data",
        "--validation_data=data",
        "--minibatch_size=32",
        "--num_epochs=3",
        "--checkpoint_steps=50",
    ]


def stopped(elastic: Elastic, flags: list[str], when: str) -> Path:
    """Train until a line is printed, then Ctrl-C; returns the run directory."""
    with elastic.start("train", *flags) as running:
        running.wait_for(when)
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.output
    return elastic.jobs / elastic.job


def killed(elastic: Elastic, command: list[str], when: str) -> Path:
    """Run a command until a line is printed, then lose all of its processes; returns the run directory."""
    with elastic.start(*command) as running:
        running.wait_for(when)
        running.process.send_signal(signal.SIGKILL)
        running.wait()
    elastic.wait_until_gone()
    return elastic.jobs / elastic.job


def resume(elastic: Elastic) -> Outcome:
    elastic.remove_delay()
    resumed = elastic.run("resume", elastic.job)
    assert resumed.exit_code == 0, resumed.output
    check_exact(resumed)
    return resumed


def newest_snapshot(run: Path) -> Path:
    """Folder of the snapshot that was written last."""
    return max(run.glob("storage/*/snapshots/ps-0/*/manifest"), key=lambda path: path.stat().st_mtime_ns).parent


def test_a_job_whose_event_log_is_lost_goes_on_from_its_snapshots(elastic: Elastic, job_flags: list[str]) -> None:
    run = stopped(elastic, job_flags, r"validation at step")
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    shutil.rmtree(run / "nats")
    resumed = resume(elastic)
    assert "its event log is lost" in resumed.output
    (lost,) = resumed.report["log"]["lost"]
    assert lost["after_s"] is None
    assert lost["records"] > 10
    assert lost["until_s"] < lost["resumed_s"]
    assert resumed.report["batches_computed"] < 3 * RECORDS / 32, "what the snapshots hold was not computed again"
    assert resumed.report["history"]["epochs"][0] == history[0], "what was known of the first epoch is kept"
    assert len(resumed.report["history"]["epochs"]) == 3
    status = elastic.run("status", elastic.job)
    assert "Part of the event log is lost: from the start of the job" in status.output


async def spoil(run: Path, *registers: str) -> None:
    """Replace registers of a job that does not run by unreadable bytes."""
    async with open_bus(RunDirectory(run.parent, JobId(run.name))) as bus:
        for name in registers:
            entry = await bus.registers.read(name)
            await bus.registers.write(name, b"\xff\x00garbage", after=entry.seq if entry else 0)


@pytest.mark.parametrize("flags", [["--rebuild_bus"], pytest.param([], marks=pytest.mark.thorough)])
def test_a_job_whose_registers_cant_be_read_continues(elastic: Elastic, job_flags: list[str], flags: list[str]) -> None:
    run = stopped(elastic, job_flags, r"validation at step")
    asyncio.run(spoil(run, "ps-0", PLACEMENT))
    elastic.remove_delay()
    resumed = elastic.run("resume", elastic.job, *flags)
    assert resumed.exit_code == 0, resumed.output
    check_exact(resumed)
    assert resumed.report["batches_computed"] < 3 * RECORDS / 32, "what the snapshots hold was not computed again"


@pytest.mark.thorough
def test_a_log_whose_end_is_lost_is_behind_the_ledgers_and_that_is_fine(elastic: Elastic, job_flags: list[str]) -> None:
    run = killed(elastic, ["train", *job_flags], PROGRESS)
    early = shutil.copytree(run / "nats", elastic.folder / "early")
    killed(elastic, ["resume", elastic.job], r"validation at step")
    shutil.rmtree(run / "nats")
    shutil.copytree(early, run / "nats")
    resumed = resume(elastic)
    (lost,) = resumed.report["log"]["lost"]
    assert lost["after_s"] < lost["until_s"] < lost["resumed_s"]
    assert lost["records"] > 10


def test_without_log_and_snapshots_there_is_one_clear_message(elastic: Elastic, job_flags: list[str]) -> None:
    run = stopped(elastic, job_flags, PROGRESS)
    shutil.rmtree(run / "nats")
    shutil.rmtree(run / "storage")
    refused = elastic.run("resume", elastic.job)
    assert refused.exit_code == 1
    assert "are lost" in refused.output
    assert "Traceback" not in refused.output
    assert len(refused.output.strip().splitlines()) == 2, refused.output


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        pytest.param(flip, "dense-0", id="bent", marks=pytest.mark.thorough),
        pytest.param(truncate, "manifest", id="torn"),
    ],
)
def test_a_damaged_snapshot_is_replaced_by_an_older_one(
    elastic: Elastic, job_flags: list[str], damage: Callable[[Path], None], name: str
) -> None:
    run = stopped(elastic, job_flags, PROGRESS)
    damaged = newest_snapshot(run) / name
    damage(damaged)
    resumed = resume(elastic)
    (row,) = resumed.report["snapshots"]["damaged"]
    assert (row["ps"], row["object"]) == ("ps-0", str(damaged))
    assert row["instead"].endswith("/manifest")
    assert f"A snapshot of ps-0 is damaged: {damaged}" in resumed.output
    events = elastic.run("events", elastic.job)
    assert "SnapshotDamaged" in events.output


def test_when_every_snapshot_is_damaged_the_job_fails_with_the_object_named(
    elastic: Elastic, job_flags: list[str]
) -> None:
    run = stopped(elastic, job_flags, PROGRESS)
    for manifest in run.glob("storage/*/snapshots/ps-0/*/manifest"):
        truncate(manifest)
    for attempt in range(2):  # The second one is no better, and no worse.
        failed = elastic.run("resume", elastic.job)
        assert failed.exit_code == 1, (attempt, failed.output)
        assert f"{newest_snapshot(run)}/manifest is damaged" in failed.output
        assert "Start a new job" in failed.output
        assert "Traceback" not in failed.output
        assert failed.report["snapshots"]["damaged"]


@pytest.mark.thorough
def test_a_job_whose_indices_are_lost_makes_them_anew(elastic: Elastic, job_flags: list[str]) -> None:
    run = stopped(elastic, job_flags, PROGRESS)
    shutil.rmtree(run / "storage" / "index")
    assert resume(elastic).output.count("Rebuilding it") == 1, "training and validation data are one file"
