"""``python -m elasticdl.cli.script.fit_job``: waits for calls of ``fit()`` in a script, and runs each as a job.

It starts with the script, and imports TensorFlow for the workers while the script does so for itself. What has been
imported serves all jobs of the script. Its standard input is a socket:

    script -> this process    a line of JSON: a call
    script -> this process    an empty line: the data of the call is written, if the call has said that it would be
    this process -> script    lines of JSON: the progress, if the call asks for it
    this process -> script    an empty line: the job has succeeded

If a job does not succeed, this process ends with the exit code of the job. It also ends when the script does; if a
job is running then, once that has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from elasticdl.cli import exit_codes, interrupts
from elasticdl.cli.local.processes.fork_server import ForkServers, fork_servers
from elasticdl.cli.local.processes.imports import HASH_SEEDS
from elasticdl.cli.local.processes.logs import NewLines
from elasticdl.cli.submission.seed import seed_of, with_seed
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.options import flags_of, from_plain_values, typed_values
from elasticdl.shared.job.spec import Strategy
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.names import JobId, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.logs import hide_details

if TYPE_CHECKING:
    from elasticdl.cli.local.observer import Watch
    from elasticdl.cli.script.early_data import EarlyData

SHOWN_EVERY_S = 0.5
SUCCEEDED = b"\n"
"""The answer that ends a job."""
SEEDS = 1 << 64
"""How many seeds a job can have."""
Start = Callable[[TrainFlags, JobId, float, "Watch | None", "EarlyData | None"], int]
"""(flags, job, when the call began, watches it, its data) -> exit code of the job, once it has ended."""


def main() -> int:
    """Entry point; returns the exit code of the last job."""
    from elasticdl.cli.submission.flag_items import parse_envs

    given = json.loads(os.environ.pop("ELASTICDL_SCRIPT"))
    root = Path(os.environ.pop("ELASTICDL_SCRIPT_ROOT"))
    of_pods = {name: given.pop(name) for name in flags_of(KubernetesFlags) if name in given}
    flags = from_plain_values(TrainFlags, {"model_def": "", "training_data": "", **given})
    hide_details(debug=flags.debug)
    has_seed = flags.seed is not None
    flags = with_seed(flags)
    # Processes of a job must not inherit the socket: the script waits for its end.
    with socket.socket(fileno=os.dup(0)) as script, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

        def start_there(flags: TrainFlags, job: JobId, started_s: float, *_: object) -> int:
            from elasticdl.cli.kubernetes.new_job.start import start

            flags.check()
            return start(flags, from_plain_values(KubernetesFlags, of_pods), started_s, job)

        if flags.platform == "kubernetes":
            return _serve(script, flags, root, start_there, has_seed=has_seed)
        processes, envs = flags.processes, parse_envs(flags.envs)
        with fork_servers(processes=processes, seed=seed_of(flags), envs=envs, several_jobs=True) as forks:
            forks.begin(None, [Service.WORKER])
            if flags.strategy is Strategy.ALLREDUCE:
                forks.leave_out(Service.PS)
            threading.Thread(target=_begin_others, args=(forks,), name="begin", daemon=True).start()
            from elasticdl.cli.commands.new_job import start

            def start_here(
                flags: TrainFlags, job: JobId, started_s: float, watch: Watch | None, early: EarlyData | None
            ) -> int:
                return start(flags, root, forks, started_s, None, job, watch, early)

            return _serve(script, flags, root, start_here, has_seed=has_seed)


def _begin_others(forks: ForkServers) -> None:
    """Start the fork servers of master and ps once that of the workers is ready: the first job need not wait then."""
    forks.servers[Service.WORKER].wait()
    forks.begin(None)


def _serve(script: socket.socket, flags: TrainFlags, root: Path, start: Start, *, has_seed: bool) -> int:
    """Run one job after the other; returns the exit code of the first that does not succeed."""
    with contextlib.suppress(KeyboardInterrupt), script.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            watch = early = None
            if request["shows_facts"]:
                from elasticdl.cli.script.fit_progress import Sender

                watch = Sender(script.sendall).watch
            if request["first"]:
                from elasticdl.cli.script.early_data import EarlyData

                early = EarlyData(first=request["first"], wait=partial(_await_data, requests))
            seeded = _seeded(flags, request["number"] - 1, has_seed=has_seed)
            if code := _run(request, seeded, root, script, start, watch, early):
                return code
            interrupts.catch()  # The end of a job ignores further signals.
            try:
                script.sendall(SUCCEEDED)
            except OSError:
                job = request["job"]
                sys.stderr.write(
                    f"The script has ended before its job {job}. elasticdl run --resume={job} continues it.\n"
                )
                break
    return exit_codes.INTERRUPTED


def _seeded(flags: TrainFlags, number: int, *, has_seed: bool) -> TrainFlags:
    """The flags with a seed that other jobs do not have, unless the user has given one.

    The fork servers have imported with the seed of the first job: see ``import_constants``.
    """
    assert flags.seed is not None
    return flags if has_seed else replace(flags, seed=(flags.seed + number * HASH_SEEDS) % SEEDS)


def _await_data(requests: IO[bytes]) -> None:
    if not requests.readline():
        raise KeyboardInterrupt


def _still_writes(script: socket.socket) -> bool:
    """Whether the script will write to the socket; not if it has ended, or could not write the data of a job."""
    try:
        return bool(script.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return True


def _run(
    request: dict[str, Any],
    flags: TrainFlags,
    root: Path,
    script: socket.socket,
    start: Start,
    watch: Watch | None,
    early: EarlyData | None,
) -> int:
    started_s = SystemClock().now()
    os.chdir(request["folder"])
    job = JobId(request["job"])
    try:
        with _only_prints(root / job / "logs") if request["quiet"] else contextlib.nullcontext():
            code = start(replace(flags, **typed_values(TrainFlags, request["values"])), job, started_s, watch, early)
    except (KeyboardInterrupt, ElasticDLError) as error:
        code = exit_codes.INTERRUPTED
        if early and not _still_writes(script):
            pass  # The script can't write the data, and says why.
        elif isinstance(error, ElasticDLError):
            if flags.debug:
                raise
            code = _refused(error, request)
        else:
            sys.stderr.write("Interrupted before training began; nothing is left of the job.\n")
    if not (root / job / "job.json").exists():
        shutil.rmtree(root / job, ignore_errors=True)
    return code


def _refused(error: ElasticDLError, request: Mapping[str, Any]) -> int:
    """Say why there is no job; returns the exit code."""
    from elasticdl.cli.display.consoles import print_error

    # The file that gives workers the model is not the user's; its name would say nothing.
    said = str(error).replace(*request["replace"])
    Path(request["refusal"]).write_text(said)
    print_error(said)
    return exit_codes.of_error(error)


@contextlib.contextmanager
def _only_prints(logs: Path) -> Iterator[None]:
    """Show what the user's code prints in the workers, and nothing of the job but its errors."""
    ended = threading.Event()
    before = os.dup(sys.stdout.fileno())

    def follow() -> None:
        printed = NewLines(logs, read={})
        with contextlib.suppress(BrokenPipeError), os.fdopen(shown, "w") as terminal:
            while True:
                is_last = ended.wait(SHOWN_EVERY_S)
                for _, line in printed.take(partial=is_last):
                    terminal.write(f"{line}\n")
                terminal.flush()
                if is_last:
                    return

    sys.stdout.flush()
    shown = os.dup(sys.stdout.fileno())
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
    following = threading.Thread(target=follow, name="prints of workers")
    following.start()
    try:
        yield
    finally:
        ended.set()
        following.join()
        sys.stdout.flush()
        os.dup2(before, sys.stdout.fileno())
        os.close(before)


if __name__ == "__main__":
    interrupts.catch()
    try:
        code = main()
    except KeyboardInterrupt:  # The script was interrupted, and has no job yet.
        code = exit_codes.INTERRUPTED
    leave(code)
