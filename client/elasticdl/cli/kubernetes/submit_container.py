"""``python -m elasticdl.cli.kubernetes.submit_container``: the first process of the container ``submit``.

It begins to import TensorFlow, in a process of its own, before it imports ``submit``: the check of the model waits for
that import, which takes longer than all others together. So it imports little itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.kubernetes.names import JOB_FOLDER, SUBMISSION_FILE

if TYPE_CHECKING:
    from elasticdl.cli.local.processes.fork_server import ForkServers


def seed_of_new_run(text: str) -> int | None:
    """The seed of the processes of a job, from its ``submission.json``.

    Returns:
        None if no model is checked: a resumed run has one that was checked, and of a file that can't be read ``submit``
        says what is wrong.
    """
    try:
        content = json.loads(text)
        return None if "resumption" in content else int(content["flags"].get("seed") or 0)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def begin_imports(file: Path) -> ForkServers | None:
    """The server that checks the model, which has begun to import TensorFlow; None: no model is checked."""
    try:
        seed = seed_of_new_run(file.read_text())
    except OSError:
        return None
    if seed is None:
        return None
    from elasticdl.cli.local.processes.fork_server import fork_servers
    from elasticdl.shared.names import Service

    # The template of the container has the number of threads.
    forks = fork_servers(processes=1, seed=seed, envs={})
    forks.begin(None, [Service.WORKER])
    return forks


def main() -> int:
    """Entry point."""
    forks = begin_imports(Path(JOB_FOLDER, SUBMISSION_FILE))
    from elasticdl.cli.kubernetes import submit

    return submit.main(forks)


if __name__ == "__main__":
    sys.exit(main())
