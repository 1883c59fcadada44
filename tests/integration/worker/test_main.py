"""The worker's command line, which is its environment."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.deadline import DEADLINE_S


def test_a_process_without_settings_says_which_is_missing() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ELASTICDL_")}
    child = subprocess.run(
        [sys.executable, "-m", "elasticdl.worker.main"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert child.returncode == 1
    assert child.stderr.startswith("ELASTICDL_NATS_URL is not set")
