"""``elasticdl train``: begins to import TensorFlow, and then everything that a new job needs."""

from __future__ import annotations

from pathlib import Path

from elasticdl.cli.background import Accept, run_in_background
from elasticdl.cli.local.processes.fork_server import fork_servers
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.flag_items import parse_envs
from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.cli.submission.seed import with_seed
from elasticdl.shared.names import Service


def train(flags: TrainFlags, root: Path, started_s: float) -> int:
    """Run the command.

    Args:
        started_s: when the user entered the command, seconds since the epoch.

    Returns:
        Its exit code.

    Raises:
        ElasticDLError: the job can't be planned or started.
        KeyboardInterrupt: the user interrupted it before it started. It has left nothing behind.
    """
    check_extras()
    if flags.detach:
        return run_in_background(lambda accept: _train(flags, root, started_s, accept))
    return _train(flags, root, started_s, None)


def _train(flags: TrainFlags, root: Path, started_s: float, accept: Accept | None) -> int:
    flags = with_seed(flags)
    assert flags.seed is not None
    processes = flags.num_workers + flags.num_ps_pods
    with fork_servers(processes=processes, seed=flags.seed, envs=parse_envs(flags.envs)) as forks:
        forks.begin(None, [Service.WORKER])
        from elasticdl.cli.commands.new_job import start

        return start(flags, root, forks, started_s, accept)
