"""What the first process of the container ``submit`` begins with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.cli.kubernetes.submit_container import begin_imports, seed_of_new_run
from elasticdl.cli.submission.seed import seed_of
from elasticdl.shared.job.kind_options import EvaluateFlags, TrainFlags
from elasticdl.shared.names import Incarnation, JobId

TRAIN = TrainFlags(model_def="m.py", training_data="data", seed=7)
EVALUATE = EvaluateFlags(model_def="m.py", validation_data="data")


def file(flags: TrainFlags | EvaluateFlags, resumption: ResumeChanges | None = None) -> SubmissionFile:
    """A file with these flags."""
    return SubmissionFile(job=JobId("job-1"), run=Incarnation("run"), created_s=1.0, flags=flags, resumption=resumption)


@pytest.mark.parametrize("flags", [TRAIN, replace(TRAIN, seed=None), EVALUATE])
def test_the_seed_is_that_of_the_job(flags: TrainFlags | EvaluateFlags) -> None:
    assert seed_of_new_run(file(flags).to_json()) == seed_of(flags)


def test_a_resumed_run_checks_no_model() -> None:
    assert seed_of_new_run(file(TRAIN, ResumeChanges()).to_json()) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"flags": {"seed": "x"}})])
def test_what_is_wrong_is_left_to_submit(text: str) -> None:
    assert seed_of_new_run(text) is None


def test_without_a_file_nothing_begins(tmp_path: Path) -> None:
    assert begin_imports(tmp_path / "absent") is None
