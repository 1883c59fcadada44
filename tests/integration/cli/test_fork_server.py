"""The fork server with real forks: its workers are children like all others, and it is never needed."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.deadline import DEADLINE_S, Gate

from elasticdl.cli.local.processes.children import ChildProcesses, Exit
from elasticdl.cli.local.processes.fork_server import ForkServer, ForkServers, fork_servers
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.names import JobId, PodName, Service
from elasticdl.shared.process.fork_server import WaitingProcess
from elasticdl.shared.process.settings import WorkerSettings, to_environment, variable

pytestmark = pytest.mark.tensorflow

COMMAND = service_command(Service.WORKER)


class SilentBroker:
    """Lets a worker connect and says nothing: it waits, and that it has come so far is known."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self._connections: list[socket.socket] = []

    def environment(self, pod: str) -> dict[str, str]:
        port = self._listener.getsockname()[1]
        settings = WorkerSettings(
            nats_url=f"nats://127.0.0.1:{port}", job=JobId("job-0001"), pod=PodName(pod), token="t", run_dir=""
        )
        return {**os.environ, **to_environment(settings)}

    def await_worker(self) -> None:
        self._connections.append(self._listener.accept()[0])

    def close(self) -> None:
        for connection in (self._listener, *self._connections):
            connection.close()


@pytest.fixture
def broker() -> Iterator[SilentBroker]:
    broker = SilentBroker()
    yield broker
    broker.close()


class Launcher:
    """Processes that are started by a fork server, and the exits that they reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exits: queue.Queue[Exit] = queue.Queue()
        others = set(psutil.Process().children())
        self.forks = ForkServer(Spawner(), COMMAND)
        self.processes = ChildProcesses(self.forks, self.exits.put)
        self.forks.begin(environment=os.environ, log=folder / "fork-server.log")
        asyncio.run(self.forks.settle())
        (self.server,) = set(psutil.Process().children()) - others

    def start(self, name: str, environment: dict[str, str]) -> psutil.Process:
        return psutil.Process(self.start_briefly(name, environment))

    def start_briefly(self, name: str, environment: dict[str, str]) -> int:
        """Start a process that may have ended already; returns its pid."""
        return self.processes.start(
            name, COMMAND, environment=environment, log=self.folder / f"{name}.log", output=self.folder / f"{name}.out"
        )


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.processes.kill_all()
    launcher.forks.stop()


def is_forked(process: psutil.Process) -> bool:
    """Whether a process is the fork server or has been forked: it was not started with the settings of a service."""
    return variable("pod") not in process.environ()


def test_a_forked_worker_is_a_child_in_a_session_of_its_own_and_its_end_is_reported(
    launcher: Launcher, broker: SilentBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # As a script may do it between two calls of fit().
    worker = launcher.start("worker-0", broker.environment("worker-0"))
    broker.await_worker()
    assert is_forked(worker)
    assert worker.cwd() == str(tmp_path)
    assert worker.ppid() == os.getpid()
    assert os.getsid(worker.pid) == worker.pid
    assert '"pod": "worker-0"' in (launcher.folder / "worker-0.log").read_text()
    launcher.processes.signal("worker-0", signal.SIGKILL)
    assert launcher.exits.get(timeout=DEADLINE_S) == Exit(name="worker-0", pid=worker.pid, exit_code=-signal.SIGKILL)
    assert launcher.processes.usage["worker-0"].cpu_s > 0


def test_a_forked_worker_has_the_environment_and_nothing_else(launcher: Launcher) -> None:
    launcher.start_briefly("worker-0", {"PATH": os.environ["PATH"]})
    assert launcher.exits.get(timeout=DEADLINE_S).exit_code == 1
    assert "ELASTICDL_" in (launcher.folder / "worker-0.log").read_text()


def test_workers_live_on_without_their_fork_server_and_others_are_started_the_usual_way(
    launcher: Launcher, broker: SilentBroker
) -> None:
    first, second = launcher.forks.end_job(), launcher.forks.end_job()
    forked = launcher.start("worker-0", broker.environment("worker-0"))
    broker.await_worker()
    assert is_forked(forked)  # A server may serve several jobs.
    cpu_s, rss_bytes = launcher.forks.stop()
    assert cpu_s >= first[0] > second[0]  # Each job counts what the server has used since the last one.
    assert rss_bytes > 100_000_000
    usual = launcher.start("worker-1", broker.environment("worker-1"))
    broker.await_worker()
    assert forked.is_running()
    assert not is_forked(usual)


def test_a_fork_server_that_dies_unnoticed_is_not_missed(launcher: Launcher, broker: SilentBroker) -> None:
    launcher.server.kill()
    worker = launcher.start("worker-0", broker.environment("worker-0"))
    broker.await_worker()
    assert not is_forked(worker)
    launcher.forks.end_job()
    assert not launcher.forks.has_begun  # The next job starts another one.


def test_only_workers_are_forked(launcher: Launcher) -> None:
    launcher.processes.start(
        "ps-0", [sys.executable, "-c", "print('no worker')"], environment=os.environ, log=launcher.folder / "ps-0.log"
    )
    assert launcher.exits.get(timeout=DEADLINE_S).exit_code == 0
    assert (launcher.folder / "ps-0.log").read_text() == "no worker\n"


WAITS = """
import os, sys
from pathlib import Path
from elasticdl.shared.process.fork_server import Handover
handover = Handover(Path(sys.argv[1]))
Path(sys.argv[2]).write_text("waiting")
print(handover.wait()["NAME"], flush=True)
"""


class Kept:
    """A process that waits to become the one with this log."""

    def __init__(self, forks: ForkServers, log: Path) -> None:
        self.log = log
        pipe, waiting = log.with_suffix(".pipe"), Gate(log.with_suffix(".waiting"))
        os.mkfifo(pipe)
        command = [sys.executable, "-c", WAITS, str(pipe), str(waiting.path)]
        self.pid = Spawner().start(command, environment=os.environ, log=log)
        waiting.wait()
        forks.keep(log, WaitingProcess(pid=self.pid, pipe=pipe))


def test_a_kept_process_becomes_the_next_one_with_its_log(tmp_path: Path) -> None:
    forks = fork_servers(processes=2, seed=7, envs={})
    kept, dead, unused = (Kept(forks, tmp_path / f"worker-{number}.log") for number in range(3))
    os.kill(dead.pid, signal.SIGKILL)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    others = [sys.executable, "-c", "pass"]
    assert forks.start(others, environment={"NAME": "worker-0"}, log=kept.log) == kept.pid
    replacement = forks.start(others, environment=os.environ, log=dead.log)
    forks.stop()
    for pid in (kept.pid, replacement):
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert kept.log.read_text() == "worker-0\n"
    assert not any(map(psutil.pid_exists, (dead.pid, unused.pid)))


KILLED = """
import asyncio, json, os, sys, time
from pathlib import Path
from elasticdl.cli.local.processes.fork_server import ForkServer
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.names import Service
command, folder = service_command(Service.WORKER), Path(sys.argv[1])
forks = ForkServer(Spawner(), command)
forks.begin(environment=os.environ, log=folder / "fork-server.log")
asyncio.run(forks.settle())
print(forks.start(command, environment=json.loads(sys.argv[2]), log=folder / "worker.log"), flush=True)
time.sleep(600)
"""


def test_forked_workers_die_with_a_launcher_that_is_killed(tmp_path: Path, broker: SilentBroker) -> None:
    arguments = [sys.executable, "-c", KILLED, str(tmp_path), json.dumps(broker.environment("worker-0"))]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        worker = psutil.Process(int(launcher.stdout.readline()))
        broker.await_worker()
        assert is_forked(worker)
        family = [worker, *psutil.Process(launcher.pid).children()]
        launcher.kill()
    _, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert alive == []


def test_a_server_that_begins_before_there_is_a_folder_for_its_log_writes_it_in_the_end(tmp_path: Path) -> None:
    server = ForkServer(Spawner(), [sys.executable, "-m", "no_such_module"])
    server.begin(environment=os.environ, log=None)
    server.wait()
    server.log_to(tmp_path / "log")
    server.stop()
    assert "No module named 'no_such_module'" in (tmp_path / "log").read_text()
