"""A destination that can't be written is refused with its flag and a readable reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.cli.commands.export import export
from elasticdl.cli.commands.resume import resume
from elasticdl.cli.jobs.export_settings import ExportSettings
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.submission.preflight import data_paths
from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.names import JobId

MODEL = "def custom_model(): ...\ndef loss(a, b): ...\ndef optimizer(): ...\ndef feed(a, b, c): ...\n"


@pytest.mark.parametrize("output", ["/proc/x", "data.csv/out"])
def test_an_output_that_can_not_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    Path("data.csv").write_text("x\n1\n")
    flags = TrainFlags(model_def="model.py", training_data="data.csv", output=output)
    steps: list[str] = []
    with pytest.raises(UserError, match=f"--output={output} can't be written: no file can be created there") as refused:
        prepare(flags, tmp_path / "jobs", steps.append)
    assert "elasticdl-can-write" not in str(refused.value)
    assert steps == []  # Before the data is read, which may take long.


def test_data_that_the_model_file_reads_is_no_folder() -> None:
    query = "select a, b from 'odps://orders' where c = '" + 300 * "x" + "'"
    record = JobRecord(job=JobId("j"), created_s=1.0, state="stopped", training_data=query, custom_data_reader="table")
    assert data_paths(record) == []


@pytest.mark.parametrize("data", ["train", "test"])
@pytest.mark.parametrize("command", ["resume", "export"])
def test_a_new_output_inside_training_or_validation_data_is_refused(tmp_path: Path, command: str, data: str) -> None:
    run = RunDirectory(tmp_path / "jobs", JobId("job-1"))
    run.create()
    folders = {name: str(tmp_path / name) for name in ("train", "test")}
    run.write(
        JobRecord(
            job=run.job,
            created_s=1.0,
            state="stopped",
            working_directory=os.getcwd(),
            training_data=folders["train"],
            validation_data=folders["test"],
        )
    )
    output = f"{folders[data]}/out"
    with pytest.raises(UserError, match=f"--output={output} is inside the data {folders[data]}"):
        if command == "resume":
            resume(run.job, run.root, ResumeChanges(output=output))
        else:
            export(run.job, run.root, ExportSettings(output=output))
