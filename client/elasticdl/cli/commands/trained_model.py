"""``elasticdl evaluate`` and ``elasticdl predict``: begin to import TensorFlow, then everything that a job needs."""

from __future__ import annotations

import sys
from pathlib import Path

from elasticdl.cli import exit_codes
from elasticdl.cli.background import Accept, run_in_background
from elasticdl.cli.local.processes.fork_server import fork_servers
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.flag_items import parse_envs
from elasticdl.cli.submission.trained_model.flags import EvaluateFlags, PredictFlags
from elasticdl.shared.names import Service


def run(flags: EvaluateFlags | PredictFlags, root: Path, started_s: float) -> int:
    """Run the command; arguments as of ``elasticdl.cli.commands.train``.

    Returns:
        Its exit code.

    Raises:
        ElasticDLError: the job can't be planned or started.
    """
    check_extras()
    try:
        if flags.detach:
            return run_in_background(lambda accept: _run(flags, root, started_s, accept))
        return _run(flags, root, started_s, None)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted before the job began; nothing is left of it.\n")
        return exit_codes.INTERRUPTED


def _run(flags: EvaluateFlags | PredictFlags, root: Path, started_s: float, accept: Accept | None) -> int:
    processes = flags.num_workers + flags.num_ps_pods
    with fork_servers(processes=processes, seed=0, envs=parse_envs(flags.envs)) as forks:
        forks.begin(None, [Service.WORKER])
        from elasticdl.cli.commands.new_job import start_with_trained_model

        return start_with_trained_model(flags, root, forks, started_s, accept)
