"""The socket between a script and the process that runs its jobs: neither misses that the other has ended."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.unit.cli.job_log import half_done

from elasticdl.cli import exit_codes
from elasticdl.cli.script.early_data import EarlyData
from elasticdl.cli.script.fit_job import Start, _serve
from elasticdl.cli.script.fit_progress import Sender
from elasticdl.cli.script.launcher import WRITTEN, follow
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags

FLAGS = TrainFlags(model_def="m.py", training_data="data", seed=7)


def request(folder: Path, number: int, first: Mapping[str, str] = MappingProxyType({})) -> bytes:
    values: dict[str, Any] = {"job": f"job-{number}", "values": {}, "quiet": False, "replace": ["m.py", "script.py"]}
    values |= {
        "first": dict(first),
        "folder": str(folder),
        "refusal": str(folder / "refusal"),
        "number": number,
        "shows_facts": True,
    }
    return json.dumps(values).encode() + b"\n"


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def serve(script: socket.socket, folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(folder)
    return _serve(script, FLAGS, folder, start, has_seed=False)


def test_a_job_continues_when_its_script_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, script = socket.socketpair()
    script.sendall(request(tmp_path, 1))
    ended = []

    def start(flags: TrainFlags, job: str, started_s: float, watch: Any, early: EarlyData | None) -> int:
        script.close()
        watch(half_done().state, {}, 1.0)
        ended.append(job)
        return 0

    with ours:
        assert serve(ours, tmp_path, start, monkeypatch) == exit_codes.INTERRUPTED
    assert ended == ["job-1"]


def test_jobs_have_different_seeds_until_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, script = socket.socketpair()
    for number in (1, 2, 3):
        script.sendall(request(tmp_path, number))
    seeds = []

    def start(flags: TrainFlags, job: str, started_s: float, watch: Any, early: EarlyData | None) -> int:
        seeds.append(flags.seed)
        return 0 if job == "job-1" else 5

    with ours, script:
        assert serve(ours, tmp_path, start, monkeypatch) == 5
        assert seeds == [7, 7 + (1 << 32)]
        assert script.recv(100) == b"\n"


def test_a_job_begins_before_its_data_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, script = socket.socketpair()
    script.sendall(request(tmp_path, 1, first={"training_data": "first.npz"}))
    steps = []

    def start(flags: TrainFlags, job: str, started_s: float, watch: Any, early: EarlyData | None) -> int:
        assert early is not None
        steps.append(early.first["training_data"])
        script.sendall(WRITTEN)
        early.wait()
        steps.append("whole")
        return 5

    with ours, script:
        assert serve(ours, tmp_path, start, monkeypatch) == 5
    assert steps == ["first.npz", "whole"]


@pytest.mark.parametrize("error", [None, UserError("no space left")])
def test_a_job_ends_silently_when_its_script_can_not_write_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: UserError | None
) -> None:
    ours, script = socket.socketpair()
    script.sendall(request(tmp_path, 1, first={"training_data": "first.npz"}))
    (tmp_path / "job-1").mkdir()

    def start(flags: TrainFlags, job: str, started_s: float, watch: Any, early: EarlyData | None) -> int:
        assert early is not None
        script.shutdown(socket.SHUT_WR)
        if error:
            raise error
        early.wait()
        return 0

    with ours, script:
        assert serve(ours, tmp_path, start, monkeypatch) == exit_codes.INTERRUPTED
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "job-1").exists()


def test_ctrl_c_while_the_progress_is_shown_does_not_leave_the_job_behind() -> None:
    shown, interrupted = list[Mapping[str, Any]](), list[int]()

    def show(facts: Mapping[str, Any]) -> None:
        shown.append(facts)
        if len(shown) == 1:
            raise KeyboardInterrupt

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"batches": 1}\n{"batches": 2}\n\n')
        assert follow(ours, show, lambda: interrupted.append(1))
        assert shown == [{"batches": 1}, {"batches": 2}]
        assert interrupted == [1]
        theirs.close()
        assert not follow(ours, show, lambda: None)


def test_the_progress_is_sent_when_it_has_changed() -> None:
    sent, state = list[bytes](), half_done().state
    sender = Sender(sent.append)
    for _ in range(2):
        sender.watch(state, {}, 1.0)
    (line,) = sent
    assert json.loads(line)["batches"] > 0


def test_each_epoch_is_sent_once() -> None:
    sent = list[bytes]()
    sender, first, second = Sender(sent.append), {"loss": 2.0}, {"loss": 1.0}
    for batches, epochs in ((5, [first]), (6, [first]), (10, [first, second])):
        sender.send({"steps": 5, "batches": batches, "loss": 1.0, "epochs": epochs})
    assert [json.loads(line)["epochs"] for line in sent] == [[first], [], [second]]
