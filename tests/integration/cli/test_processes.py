"""The process adapter with real children and real kills."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.deadline import DEADLINE_S

from elasticdl.cli.local.processes.children import ChildProcesses, Exit
from elasticdl.cli.local.processes.logs import tail
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.pods.causes import classify_exit, describe_exit


class Keeper:
    """Processes and the exits that they reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exits: queue.Queue[Exit] = queue.Queue()
        self.processes = ChildProcesses(Spawner(), self.exits.put)

    def start(self, name: str, code: str) -> int:
        return self.processes.start(
            name, [sys.executable, "-c", code], environment=os.environ, log=self.folder / f"{name}.log"
        )

    def exit(self) -> Exit:
        return self.exits.get(timeout=DEADLINE_S)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    keeper = Keeper(tmp_path)
    yield keeper
    keeper.processes.kill_all()


SLEEP = "import time; time.sleep(600)"


def test_an_exit_is_reported_once_with_its_code_and_log(keeper: Keeper, tmp_path: Path) -> None:
    pid = keeper.start("worker-0", "print('last words'); raise SystemExit(7)")
    assert keeper.exit() == Exit(name="worker-0", pid=pid, exit_code=7)
    assert tail(tmp_path / "worker-0.log") == "last words"
    assert keeper.exits.empty()
    assert keeper.processes.names() == []


def test_what_a_process_has_started_ends_with_it(keeper: Keeper, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeper.start("worker-0", f"import subprocess; subprocess.Popen(['sleep', '600'], stdout=open({str(pipe)!r}, 'w'))")
    with pipe.open() as output:  # Opens once worker-0 has opened it, too. It is at its end once no process holds it.
        assert output.read() == ""
    assert keeper.exit().exit_code == 0


def test_starting_a_running_name_again_changes_nothing(keeper: Keeper) -> None:
    first = keeper.start("ps-0", SLEEP)
    assert keeper.start("ps-0", SLEEP) == first
    assert keeper.processes.usage["ps-0"].starts == 1


def test_a_name_can_be_started_again_after_its_exit(keeper: Keeper) -> None:
    keeper.start("ps-0", "pass")
    keeper.exit()
    second = keeper.start("ps-0", SLEEP)
    assert keeper.processes.pid("ps-0") == second
    assert keeper.processes.usage["ps-0"].starts == 2


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("pass", ExitCause.FINISHED),
        ("raise SystemExit(1)", ExitCause.REFUSED),
        ("raise SystemExit(2)", ExitCause.REFUSED),
        ("raise SystemExit(3)", ExitCause.OWN_FAULT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ExitCause.OWN_FAULT),
        ("import os; os.abort()", ExitCause.OWN_FAULT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ExitCause.PREEMPTED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", ExitCause.PREEMPTED),
    ],
)
def test_the_cause_follows_from_how_a_process_ends(keeper: Keeper, code: str, cause: ExitCause) -> None:
    keeper.start("worker-0", code)
    assert classify_exit(keeper.exit().exit_code) is cause


def test_exits_read_well() -> None:
    assert describe_exit(-11) == "SIGSEGV"
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-63) == "signal 63"


def test_kill_all_leaves_no_process(keeper: Keeper) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    pids = [keeper.start(name, stubborn) for name in ("worker-0", "worker-1")]
    keeper.processes.kill_all()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert {keeper.exit().exit_code, keeper.exit().exit_code} == {-signal.SIGKILL}


def test_a_child_has_a_session_of_its_own(keeper: Keeper) -> None:
    pid = keeper.start("worker-0", SLEEP)
    assert os.getsid(pid) == pid


def test_usage_counts_memory_and_processor_time_of_the_child_alone(keeper: Keeper) -> None:
    ready = keeper.folder / "ready"
    os.mkfifo(ready)
    keeper.start("ps-0", f"sum(range(3_000_000)); open({str(ready)!r}, 'w').close(); import time; time.sleep(600)")
    ready.read_bytes()  # Blocks until the child opens it.
    keeper.processes.sample()
    keeper.processes.kill_all()
    usage = keeper.processes.usage["ps-0"]
    assert 1_000_000 < usage.rss_max_bytes < 60_000_000
    assert usage.cpu_s > 0


def test_a_program_that_is_not_there_is_one_clear_error(keeper: Keeper, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="/no/such/program can't be started"):
        keeper.processes.start("ps-0", ["/no/such/program"], environment={}, log=tmp_path / "log")
    assert keeper.processes.names() == []


LAUNCHER = """
import os, sys, time
from pathlib import Path
from elasticdl.cli.local.processes.children import ChildProcesses
from elasticdl.cli.local.processes.spawner import Spawner
processes = ChildProcesses(Spawner(), lambda ended: None)
pids = [
    processes.start(f"worker-{n}", [sys.executable, "-c", "import time; time.sleep(600)"],
                    environment=os.environ, log=Path(sys.argv[1]) / f"{n}.log")
    for n in range(2)
]
print(*pids, flush=True)
time.sleep(600)
"""


def test_children_die_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        children = [psutil.Process(int(pid)) for pid in launcher.stdout.readline().split()]
        assert len(children) == 2
        launcher.kill()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
