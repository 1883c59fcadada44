"""The page about inspecting jobs, followed with a real job: every command on it runs, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
COMMAND = re.compile(r"^    (elasticdl (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
JOB = "digits-290fe7"
"""The job on the page."""
EPOCHS = "15"
"""Enough for the tasks and events that the page names, and less than on the page."""


@pytest.mark.timeout(600)
def test_every_question_has_an_answer(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "ELASTICDL_RUN_DIR": str(tmp_path / "jobs"), "COLUMNS": "160"}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=tmp_path, env={**os.environ, **own}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    start, *questions = COMMAND.findall(PAGE.read_text())
    assert len(questions) > 10
    run("elasticdl zoo data mnist mnist")
    run(start.replace("--num_epochs=100", f"--num_epochs={EPOCHS}"))
    (job,) = [folder.name for folder in (tmp_path / "jobs").iterdir()]
    run(f"elasticdl attach {job}")
    answers = {question: run(question.replace(JOB, job)) for question in questions}
    words = {shlex.split(question)[1]: answer for question, answer in reversed(answers.items())}  # The first of each.
    assert re.search(rf"{job}\s+succeeded", words["jobs"])
    assert "State after #355" in answers[f"elasticdl replay {JOB} --until=355"]
    assert "all are the same" in answers[f"elasticdl replay {JOB} --verify"]
    assert "audit               exact" in answers[f"elasticdl report {JOB}"]
    assert "master: audit: finished in 1 of 1 ledgers of ps-0" in words["task"]
    assert "TermStarted term=1" in words["events"]
    assert "ps-0 | info: snapshot taken" in words["logs"]
    assert "points to" in words["tensorboard"]
