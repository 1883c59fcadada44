"""The report of a job on Kubernetes, as the command ``elasticdl report`` prints it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def cluster_report(job: str, namespace: str) -> dict[str, Any] | None:
    """The report of a job; None: there is no such job, or its cluster can't be reached.

    Args:
        job: its id or name.
        namespace: empty: the default one.
    """
    place = [f"--namespace={namespace}"] if namespace else []
    command = [sys.executable, "-m", "elasticdl.cli", "report", job, "--json", *place]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts
