"""A notebook with a real kernel of Jupyter."""

from __future__ import annotations

import os
import re
from html import unescape
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model

TRAIN = """
from elasticdl.api import train

job = train("model.py", "data", validation_data="data", num_epochs=2, num_workers=1)
"""


def test_a_cell_with_a_job_shows_its_progress_and_curves(elastic: Elastic, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(elastic.folder)
    write_model(elastic.folder, slowly(LINEAR, 0.15))
    monkeypatch.setenv("ELASTICDL_RUN_DIR", str(elastic.jobs))
    # Only the kernel of the environment of these tests knows their import path.
    monkeypatch.setenv("JUPYTER_PATH", os.devnull)
    running, ended, absent = _outputs(elastic, TRAIN, "job", "type(job)('no-such-job')")

    (line,) = (each for each in running if each["output_type"] == "display_data")
    assert re.match(r"\[\d+:\d\d\] ", line["data"]["text/plain"])
    printed = "".join(each["text"] for each in running if each["output_type"] == "stream")
    assert "succeeded" in printed
    assert line["data"]["text/plain"] not in printed

    (shown,) = ended
    assert re.fullmatch(r"Job\('model-\w+'\)", shown["data"]["text/plain"])
    (page,) = re.findall(r'srcdoc="([^"]+)"', shown["data"]["text/html"])
    assert "<svg" in unescape(page)
    assert "val_mse" in unescape(page) or "validation" in unescape(page)

    (missing,) = absent
    assert "no-such-job" in missing["data"]["text/html"]
    assert "Traceback" not in missing["data"]["text/html"]
    elastic.wait_until_gone()


def _outputs(elastic: Elastic, *cells: str) -> list[list[dict[str, Any]]]:
    """What each cell shows."""
    made: Any = nbformat.v4  # It is not typed.
    notebook = made.new_notebook(cells=[made.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(elastic.folder)}}).execute()
    return [cell["outputs"] for cell in notebook.cells]
