"""What the launcher says about a model check that hangs or whose process ends early."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.unit.cli.job_log import SPEC

from elasticdl.cli.local.model_check import CheckRuntime, UnfinishedError, check_model
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.errors import UserError
from elasticdl.shared.process.model_check import ModelCheck, write_phase
from elasticdl.shared.process.oom_watch import OomWatch

NOISE = "I0000 00:00:1763838000.123456   25110 port.cc:153] oneDNN custom operations are on."


class Script:
    """Starts a script where the model check would be started.

    Args:
        code: the script.
    """

    def __init__(self, code: str) -> None:
        self._code = code

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``."""
        command = [sys.executable, "-c", self._code]
        return Spawner().start(command, environment=environment, log=log, output=output)


def check(
    folder: Path,
    code: str,
    show: Callable[[str], None] = print,
    limit_s: float = math.inf,
    oom_watch: OomWatch | None = None,
) -> ModelCheck:
    runtime = CheckRuntime(
        starter=Script(code),
        environment=lambda _url, _pod, _service: os.environ,
        logs=folder,
        show=show,
        slow_s=0.0,
        limit_s=limit_s,
        oom_watch=oom_watch or OomWatch(),
    )
    write_phase(folder, 0, "running feed() of model.py")
    return check_model(replace(SPEC, workers=1), folder, runtime)


@pytest.mark.parametrize(
    ("ends", "how"), [("os._exit(7)", "exit code 7"), ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV")]
)
def test_a_process_that_ends_without_a_result_is_reported_with_what_it_ran(tmp_path: Path, ends: str, how: str) -> None:
    code = f"import os, signal, sys\nprint('{NOISE}\\nno memory', file=sys.stderr, flush=True)\n{ends}"
    with pytest.raises(UnfinishedError) as ended:
        check(tmp_path, code)
    assert str(ended.value).splitlines() == [
        f"the model check did not finish: its process ended with {how} while running feed() of model.py.",
        f"The end of its log {tmp_path / 'worker-0.log'}:",
        "no memory",
    ]


EXPORTS = """
import os, signal, pathlib, time
from elasticdl.shared.process.model_check import ModelCheck, trying_export
folder, number = pathlib.Path({folder!r}), int(os.environ["ELASTICDL_MODEL_CHECK_NUMBER"])
if number == {crashes}:
    with trying_export(folder, number):
        {ends}
while number == 0 and (other := ModelCheck.read(folder, 1)) is None:
    time.sleep(0.01)
ModelCheck(error=other.error if number == 0 else "", fingerprint=b"made").write(folder, number)
"""


@pytest.mark.parametrize("crashes", [0, 1])
@pytest.mark.parametrize(
    ("ends", "how"), [("os._exit(70)", "exit code 70"), ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV")]
)
def test_a_crash_of_the_trial_export_refuses_the_model(tmp_path: Path, crashes: int, ends: str, how: str) -> None:
    with pytest.raises(UserError, match=f"model can't be exported. A process that tried to write it ended with {how}"):
        check(tmp_path, EXPORTS.format(folder=str(tmp_path), crashes=crashes, ends=ends))


def test_a_kill_of_the_trial_export_from_outside_refuses_nothing(tmp_path: Path) -> None:
    code = EXPORTS.format(folder=str(tmp_path), crashes=1, ends="os.kill(os.getpid(), signal.SIGKILL)")
    assert check(tmp_path, code).fingerprint == b"made"


def test_a_check_that_takes_too_long_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import subprocess\nsubprocess.run(['sh', '-c', 'exec > {pipe}; echo begun; sleep 600'])"
    opened: list[BinaryIO] = []
    with pytest.raises(UserError) as ended:
        check(tmp_path, code, lambda _line: opened.append(pipe.open("rb")), limit_s=0.0)
    assert str(ended.value) == (
        "the model check did not finish within 0 s: its process was running feed() of model.py."
    )
    (output,) = opened
    with output:
        # Reading ends when the last process that can write has ended. Two processes make the model, so two may write.
        assert set(output.read().split()) <= {b"begun"}


def test_the_conversion_of_a_large_initial_model_has_no_time_limit(tmp_path: Path) -> None:
    code = f"""
import pathlib, time
from elasticdl.shared.process import model_check
folder = pathlib.Path({str(tmp_path)!r})
model_check.begin_conversion(folder)
while not (folder / "shown").exists():
    time.sleep(0.01)
model_check.ModelCheck(notes=("converted",)).write(folder, 0)
"""
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        if line.startswith("The model is checked."):
            (tmp_path / "shown").touch()

    assert check(tmp_path, code, show, limit_s=5.0).notes == ("converted",)
    assert lines[-1] == "The model is checked. Converting the initial weights takes longer."


def test_a_slow_check_says_once_what_it_runs(tmp_path: Path) -> None:
    result = ModelCheck(notes=("fine",))
    code = f"""
import os, pathlib, time
from elasticdl.shared.process.model_check import ModelCheck
folder = pathlib.Path({str(tmp_path)!r})
while not (folder / "shown").exists():
    time.sleep(0.01)
ModelCheck(notes=("fine",)).write(folder, int(os.environ["ELASTICDL_MODEL_CHECK_NUMBER"]))
"""
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        (tmp_path / "shown").touch()

    assert check(tmp_path, code, show) == result
    (line,) = lines
    says = "The model check has not finished after 0 s: its process is running feed() of model.py."
    assert line == f"{says} Log: {tmp_path / 'worker-0.log'}"


def test_a_check_that_the_kernel_kills_for_its_memory_is_one_sentence(tmp_path: Path) -> None:
    """The job would only fail later: its workers need as much."""
    counter = tmp_path / "vmstat"
    counter.write_text("oom_kill 3\n")
    code = (
        f"import os, signal\nopen({str(counter)!r}, 'w').write('oom_kill 4\\n')\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    with pytest.raises(
        UserError, match=r"^the model check ran out of memory while running feed\(\) of model.py: "
    ) as ended:
        check(tmp_path, code, oom_watch=OomWatch(counter))
    assert "--worker_resource_request=memory=QUANTITY" in str(ended.value)
