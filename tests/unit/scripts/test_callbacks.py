"""Callbacks of a script: those that a job needs not are left out, and the others have what they have learned in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from elasticdl.cli.script.callbacks import restore, taken
from elasticdl.worker.model.user.callbacks.hooks import dump

pytestmark = pytest.mark.tensorflow


def test_callbacks_whose_work_the_job_does_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = keras.callbacks.EarlyStopping()
    assert taken(None) == []
    assert taken(stop) == [stop]  # As fit() takes it.
    assert taken([keras.callbacks.BackupAndRestore(str(tmp_path)), stop]) == [stop]
    assert "BackupAndRestore is left out: snapshots are always taken" in capsys.readouterr().out


def test_callbacks_have_what_they_have_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop, notes = keras.callbacks.EarlyStopping(restore_best_weights=True), keras.callbacks.Callback()
    given = [keras.callbacks.TerminateOnNaN(), keras.callbacks.TensorBoard(), stop, notes]
    restore(given, None, tmp_path.as_uri())
    assert not hasattr(notes, "losses")  # No hook has run.
    learned: list[dict[str, Any]] = [
        {"best": np.float32(0.5), "stopped_epoch": 3, "restore_best_weights": False},
        {"losses": [2.0, 1.0]},
    ]
    (tmp_path / "callbacks").mkdir()
    for number, part in ((2, []), (12, learned)):
        states = [{"attributes": {name: dump(value) for name, value in one.items()}} for one in part]
        (tmp_path / "callbacks" / f"{number:08d}.json").write_text(json.dumps({"state": {"callbacks": states}}))
    model = keras.Sequential()
    restore(given, model, tmp_path.as_uri())
    assert (stop.best, stop.stopped_epoch, stop.restore_best_weights) == (0.5, 3, True)
    assert (vars(notes)["losses"], notes.model) == ([2.0, 1.0], model)
    restore(given, None, "nowhere://folder")
    assert "callbacks of fit() do not have what they have learned" in capsys.readouterr().out
