"""``--detach``: what the command in the foreground says about the one in the background."""

from __future__ import annotations

import os
import signal

import pytest

from elasticdl.cli import exit_codes
from elasticdl.cli.background import Accept, run_in_background


def test_a_process_that_is_killed_in_the_background_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    def killed(_accept: Accept) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return exit_codes.SUCCESS

    assert run_in_background(killed) == exit_codes.FAILURE
    assert "was killed (signal 9) before the job was accepted" in capfd.readouterr().err
