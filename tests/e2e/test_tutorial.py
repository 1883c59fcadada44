"""The tutorial, followed word by word: every file in it is saved, and every command runs, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own_data.md"
FILE = r"Save this as\s+`(?P<file>[\w.]+)`:\n\n```python\n(?P<content>.*?)```"
COMMAND = r"^    (?P<command>(?:elasticdl|python) (?:[^\n]*\\\n)*[^\n]*)$"
STEP = re.compile(f"{FILE}|{COMMAND}", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(600)
def test_it_leads_from_a_csv_file_to_predictions(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "ELASTICDL_RUN_DIR": str(tmp_path / "jobs")}
    environment = {**os.environ, **own}
    outputs: dict[str, str] = {}
    for step in STEP.finditer(PAGE.read_text()):
        if step["file"]:
            (tmp_path / step["file"]).write_text(step["content"])
            continue
        words = shlex.split(step["command"].replace("\\\n", " "))
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{step['command']}\n{done.stdout}{done.stderr}"
        outputs[" ".join(words[:2])] = done.stdout
    assert "minutes: float64 (" in outputs["elasticdl data"]
    assert "audit               exact" in outputs["elasticdl train"]
    assert "accuracy 0." in outputs["elasticdl evaluate"]
    assert outputs["python look.py"].startswith("2000 predictions\nc00000 0.")
