"""The launcher with a real nats-server and a real master; workers and ps are children that only wait for SIGTERM."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.deadline import DEADLINE_S

from elasticdl.cli.commands.clean import CleanSettings, clean
from elasticdl.cli.local.broker import LIMITS

LAUNCHER = """
import sys
from elasticdl.cli.local import running
from elasticdl.cli.commands.new_job import job_record
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.messages.events import JobSubmitted
from elasticdl.shared.names import Service
from pathlib import Path

POD = '''
import signal, sys, tempfile, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
tempfile.mkstemp()
print("ready", flush=True)
time.sleep(600)
'''

def command(service):
    return service_command(service) if service is Service.MASTER else [sys.executable, "-P", "-c", POD]

root = Path("jobs").absolute()
flags = TrainFlags(model_def="json.py", training_data="data.csv")
submission = prepare(flags, root, print)
run = RunDirectory(root, submission.spec.job)
run.create()
with run.lock():
    record = job_record(submission, flags)
    run.write(record)
    options = running.RunOptions(started_s=0.0, command=command)
    sys.exit(running.run_job(run, record, submission.spec, (JobSubmitted(spec=submission.spec),), options))
"""

NEW_JOB = ["train", "--model_def=json.py", "--training_data=data.csv"]


class Launched:
    """A launcher in a process of its own, and what it prints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", LAUNCHER],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed = ""

    def wait_for(self, pattern: str) -> None:
        assert self.process.stdout is not None
        while not re.search(pattern, self.printed):
            line = self.process.stdout.readline()
            assert line, f"the launcher ended without {pattern!r}:\n{self.printed}"
            self.printed += line

    def ended(self) -> int:
        assert self.process.stdout is not None
        self.printed += self.process.stdout.read()
        return self.process.wait(DEADLINE_S)

    @property
    def run(self) -> Path:
        (run,) = (self.folder / "jobs").iterdir()
        return run

    def record(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.run / "job.json").read_text())
        return found

    def pid(self, name: str) -> int:
        """Process id of the master or of nats-server."""
        pids = self.record()["pids"]
        assert isinstance(pids, dict)
        return int(pids[name])


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "json.py").write_text(  # Must not take the place of the standard module.
        "def custom_model(): ...\ndef loss(a, b): ...\ndef optimizer(): ...\ndef feed(a, b, c): ...\n"
    )
    (tmp_path / "data.csv").write_text("x\n" + "1\n" * 100)
    launcher = Launched(tmp_path)
    yield launcher
    if launcher.process.poll() is None:
        launcher.process.kill()
    launcher.process.wait()
    assert launcher.process.stdout is not None
    launcher.process.stdout.close()


def all_ready(launched: Launched) -> None:
    for worker in ("worker-0", "worker-1"):
        launched.wait_for(rf"{worker} \| ready")


def test_ctrl_c_ends_everything_and_prints_how_to_go_on(launched: Launched) -> None:
    all_ready(launched)
    children = psutil.Process(launched.process.pid).children()
    assert len(children) == 5  # nats-server, master, ps, two workers
    launched.process.send_signal(signal.SIGINT)
    assert launched.ended() == 130
    assert not any(child.is_running() for child in children)
    assert f"elasticdl resume {launched.run.name} --run_dir={launched.run.parent}" in launched.printed
    assert not list((launched.folder / "tmp").iterdir())
    assert launched.record()["state"] == "stopped"
    status = [sys.executable, "-m", "elasticdl.cli", "status", launched.run.name]
    told = subprocess.run([*status, f"--run_dir={launched.run.parent}"], capture_output=True, text=True, check=True)
    assert told.stdout.count("exited") == 3 and "stopping" not in told.stdout


def test_nats_server_and_master_are_revived(launched: Launched) -> None:
    all_ready(launched)
    assert psutil.Process(launched.pid("master")).cmdline()[0].split() == ["elasticdl", "master", launched.run.name]
    os.kill(launched.pid("nats-server"), signal.SIGKILL)
    launched.wait_for("nats-server died. Restarting it on the same port.")
    os.kill(launched.pid("master"), signal.SIGKILL)
    launched.wait_for("The master was killed. Restarting it")
    launched.wait_for("The new master has recovered")
    launched.process.send_signal(signal.SIGTERM)
    assert launched.ended() == 130
    report = json.loads((launched.run / "report.json").read_text())
    assert {name: report["services"][name]["restarts"] for name in ("master", "nats-server", "worker-0")} == {
        "master": 1,
        "nats-server": 1,
        "worker-0": 0,
    }


def test_kills_of_nats_server_never_end_the_job_however_many(launched: Launched) -> None:
    all_ready(launched)
    killed: set[int] = set()
    end_s, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while len(killed) < LIMITS.crashes_max + 3:
        assert time.monotonic() < end_s, launched.printed
        for child in psutil.Process(launched.process.pid).children():
            # Some have just begun to start.
            if child.pid not in killed and child.name() == "nats-server":
                child.kill()
                killed.add(child.pid)
        pause.wait(0.001)
    os.kill(launched.pid("master"), signal.SIGKILL)
    launched.wait_for("The new master has recovered")
    launched.process.send_signal(signal.SIGTERM)
    assert launched.ended() == 130
    assert launched.record()["state"] == "stopped"


def test_a_job_whose_nats_server_keeps_crashing_has_failed_for_every_command_and_for_the_same_reason(
    launched: Launched,
) -> None:
    all_ready(launched)
    killed: set[int] = set()
    end_s, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while launched.process.poll() is None:
        assert time.monotonic() < end_s, launched.printed
        pid = launched.pid("nats-server")
        if pid and pid not in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSEGV)
            killed.add(pid)
        pause.wait(0.01)
    assert launched.ended() == 1
    reason = "nats-server keeps crashing; its log is"
    assert reason in launched.printed
    for arguments, states in ((["jobs"], 2), (["status", launched.run.name], 2), (["attach", launched.run.name], 0)):
        command = [sys.executable, "-m", "elasticdl.cli", *arguments, f"--run_dir={launched.run.parent}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert reason in done.stdout + done.stderr, done
        assert "interrupted" not in done.stdout + done.stderr
        assert done.stdout.count("failed") >= states, done


def test_a_suspended_launcher_is_named_and_nothing_is_asked_of_it(launched: Launched) -> None:
    all_ready(launched)
    launched.process.send_signal(signal.SIGSTOP)
    for arguments in (["stop"], ["scale", "--workers=3"], ["status"]):
        command = [sys.executable, "-m", "elasticdl.cli", *arguments, launched.run.name]
        done = subprocess.run(
            [*command, f"--run_dir={launched.run.parent}"], capture_output=True, text=True, check=False
        )
        text = done.stdout + done.stderr
        assert "suspended" in text and f"kill -CONT {launched.process.pid}" in text, text
        assert done.returncode == (0 if arguments == ["status"] else 1)
    launched.process.send_signal(signal.SIGCONT)
    launched.process.send_signal(signal.SIGINT)
    assert launched.ended() == 130


def test_a_suspended_launcher_is_named_also_without_an_answer_of_nats_server(launched: Launched) -> None:
    all_ready(launched)
    nats = launched.pid("nats-server")
    launched.process.send_signal(signal.SIGSTOP)
    os.kill(nats, signal.SIGSTOP)
    try:
        status = [sys.executable, "-m", "elasticdl.cli", "status", launched.run.name]
        told = subprocess.run(
            [*status, f"--run_dir={launched.run.parent}"], capture_output=True, text=True, check=False
        )
    finally:
        os.kill(nats, signal.SIGCONT)
        launched.process.send_signal(signal.SIGCONT)
    text = told.stdout + told.stderr
    assert "suspended" in text and f"kill -CONT {launched.process.pid}" in text, text
    launched.process.send_signal(signal.SIGINT)
    assert launched.ended() == 130


def test_a_killed_worker_is_started_again_under_its_name(launched: Launched) -> None:
    all_ready(launched)
    before = launched.printed.count("worker-0 | ready")
    log = subprocess.run(
        [sys.executable, "-P", "-m", "elasticdl.cli", "status", launched.run.name, "--json"],
        cwd=launched.folder,
        env=os.environ | {"ELASTICDL_RUN_DIR": str(launched.run.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    os.kill(json.loads(log.stdout)["pods"]["worker-0"]["pid"], signal.SIGKILL)
    launched.wait_for(r"worker-0 died \(SIGKILL\)\. Its tasks are dispatched again\.")
    launched.wait_for(r"(?s)(worker-0 \| ready.*){" + str(before + 1) + "}")
    launched.process.send_signal(signal.SIGINT)
    assert launched.ended() == 130


def test_a_run_directory_that_is_removed_ends_the_job(launched: Launched) -> None:
    all_ready(launched)
    children = psutil.Process(launched.process.pid).children()
    moved = launched.run.rename(launched.folder / "moved")  # At once, while processes still write into it.
    shutil.rmtree(moved, ignore_errors=True)
    assert launched.ended() == 1
    assert "was removed while the job was running" in launched.printed
    assert "Start a new job" in launched.printed and "Traceback" not in launched.printed
    assert "Restarting" not in launched.printed
    assert not any(child.is_running() for child in children)
    assert not list((launched.folder / "jobs").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB where jobs are kept."""
    disk = tmp_path / "jobs"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_ends_the_job_with_its_name_and_the_way_on(small_disk: Path, launched: Launched) -> None:
    all_ready(launched)
    children = psutil.Process(launched.process.pid).children()
    fill(launched.run / "filling")
    assert launched.ended() == 1
    said = f"the disk of the run directory {launched.run} has too little space"
    assert f"{said} (0 bytes free, at least 8 MiB needed). Stopping the job; it can be resumed." in launched.printed
    *_, last = launched.printed.strip().splitlines()
    assert f"elasticdl resume {launched.run.name} --run_dir={small_disk}" in last
    assert "Traceback" not in launched.printed and "Restarting" not in launched.printed
    assert not any(child.is_running() for child in children)
    for command in (["status", launched.run.name], ["resume", launched.run.name], NEW_JOB):
        refused = subprocess.run(
            [sys.executable, "-P", "-m", "elasticdl.cli", *command, f"--run_dir={small_disk}"],
            cwd=launched.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 1
        assert f"Error: the disk of the run directory {small_disk}" in refused.stderr
        assert "has too little space" in refused.stderr and "Free some space there" in refused.stderr
    assert list(small_disk.iterdir()) == [launched.run]


def fill(file: Path) -> None:
    """Take all the room that there is."""
    with file.open("wb", buffering=0) as filling, contextlib.suppress(OSError):
        while True:
            filling.write(bytes(1 << 20))


def test_who_follows_the_events_of_a_job_sees_the_end_of_a_killed_launcher(launched: Launched) -> None:
    all_ready(launched)
    follow = [sys.executable, "-u", "-m", "elasticdl.cli", "events", launched.run.name, "--follow"]
    with subprocess.Popen(
        [*follow, f"--run_dir={launched.run.parent}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as following:
        assert following.stdout is not None
        assert "JobSubmitted" in following.stdout.readline()
        launched.process.kill()
        rest = following.stdout.read()
        assert "Traceback" not in rest
        assert f"was interrupted: its launcher is not running. To resume: elasticdl resume {launched.run.name}" in rest
        assert following.wait(DEADLINE_S) == 0


def test_what_a_killed_launcher_leaves_among_temporary_files_goes_when_its_job_is_cleaned(launched: Launched) -> None:
    all_ready(launched)
    (temporary,) = (launched.folder / "tmp").iterdir()
    assert temporary.name == f"elasticdl-{launched.run.name}"
    assert len(list(temporary.iterdir())) == 3, "a file of each worker and ps"
    launched.process.kill()
    launched.process.wait()
    clean(launched.run.parent, [launched.run.name], CleanSettings(unfinished=True, confirmed=True))
    assert not temporary.exists()
