"""A destination that can't be written is refused with its flag and a readable reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.errors import UserError

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
