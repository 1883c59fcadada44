"""Whose model is in an output."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.exported.owner import OWNER_FILE, OutputOwner
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import to_uri


def owner(job: str, started_s: float) -> OutputOwner:
    return OutputOwner(job=JobId(job), started_s=started_s)


@pytest.mark.parametrize("model", ["model.keras", "saved_model/saved_model.pb", "export.json"])
def test_a_model_that_another_job_has_written_meanwhile_is_not_replaced(model: str, tmp_path: Path) -> None:
    output, now_s = to_uri(tmp_path), time.time()
    first, second = owner("first-1", now_s - 10), owner("second-1", now_s - 5)
    second.check(output)
    (tmp_path / model).parent.mkdir(exist_ok=True)
    (tmp_path / model).touch()
    first.check(output)  # Nobody says whose this model is.
    second.note(output)
    with pytest.raises(PermanentError, match="holds the model of job second-1, which was written after job first-1"):
        first.check(output)
    second.check(output)
    owner("third-1", time.time() + 5).check(output)


def test_an_output_without_a_model_or_with_a_damaged_note_is_free(tmp_path: Path) -> None:
    output = to_uri(tmp_path)
    owner("second-1", 0).note(output)
    owner("first-1", 0).check(output)
    (tmp_path / "model.keras").touch()
    with pytest.raises(PermanentError, match="elasticdl export first-1 --output=DIR"):
        owner("first-1", 0).check(output)
    for damaged in ("", "{}", "[]", '{"job": "second-1", "written_s": null}'):
        (tmp_path / OWNER_FILE).write_text(damaged)
        owner("first-1", 0).check(output)
