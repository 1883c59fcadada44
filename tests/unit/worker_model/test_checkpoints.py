"""ModelCheckpoint, and own callbacks that save the model: which files they write, compared with Keras' own loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.master.driver import job_spec
from tests.unit.worker_model.test_callbacks import FACTS, PATH, Job, histories

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import to_uri
from elasticdl.worker.model.user.callbacks.accepted import check_callbacks
from elasticdl.worker.ps_client.requests import PinLostError

pytestmark = pytest.mark.tensorflow

checkpoints = st.fixed_dictionaries(
    {
        "monitor": st.sampled_from(["val_loss", "loss", "val_own"]),
        "save_best_only": st.booleans(),
        "mode": st.sampled_from(["min", "max"]),
        "initial_value_threshold": st.none() | st.integers(-2, 2),
    }
)
FILE_NAMES = ("best", "{epoch:02d}", "{epoch}-{val_loss:.3f}-{loss:.1f}")


class Saves:
    """Writes down which files Keras asks a model for."""

    def __init__(self, files: list[str]) -> None:
        self.metrics: list[Any] = []
        self.save = self.save_weights = lambda filepath, overwrite: files.append(to_uri(filepath))


@settings(deadline=None)
@given(
    history=histories,
    arguments=checkpoints,
    name=st.sampled_from(FILE_NAMES),
    folder=st.sampled_from(["", "s3://bucket/models/"]),
    weights_only=st.booleans(),
    restarts=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_checkpoints_are_those_of_keras_under_the_same_names_whichever_process_writes_them(
    history: list[dict[str, float]],
    arguments: dict[str, Any],
    name: str,
    folder: str,
    weights_only: bool,
    restarts: list[bool],
) -> None:
    filepath = f"{name}{'.weights.h5' if weights_only else '.keras'}"

    def make(folder: str = folder) -> list[Any]:
        return [keras.callbacks.ModelCheckpoint(folder + filepath, save_weights_only=weights_only, **arguments)]

    expected: list[str] = []
    (of_keras,) = make("")
    of_keras.set_model(Saves(expected))
    job = Job(make)
    job.run(1)
    for epoch, logs in enumerate(history):
        if restarts[epoch]:
            job.restart()
        of_keras.on_epoch_end(epoch, dict(logs))
        job.run(2 * epoch + 2, is_last=epoch == len(history) - 1, **logs)
    if folder:
        expected = [folder + uri.rpartition("/")[2] for uri in expected]
    assert job.saved == expected


def test_a_lost_model_lets_the_hooks_run_again_from_the_state_before_them() -> None:
    job = Job(lambda: [keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True, mode="min")])
    job.run(1)
    job.is_model_lost = True
    with pytest.raises(PinLostError):
        job.run(2, val_loss=1.0)
    job.is_model_lost = False
    job.run(2, val_loss=2.0)  # That of the model after the ps was restored.
    job.run(4, val_loss=1.5)
    assert len(job.saved) == 2, "the result of the lost model is forgotten"


class SavesAtHook(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves the model in one hook."""

    def __init__(self, hook: str, method: str, *arguments: Any) -> None:
        super().__init__()
        setattr(self, hook, lambda *_: getattr(self.model, method)(*arguments))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("on_epoch_end", "save", "a.h5"), r"ends in \.keras"),
        (("on_epoch_end", "save_weights", "a.keras"), r"ends in \.weights\.h5"),
        (("on_epoch_end", "save", "a.keras", False), "overwrite=True"),
        (("on_epoch_begin", "save", "a.keras"), r"Use it in on_epoch_end\(\)"),
    ],
)
def test_a_callback_that_saves_the_model_elsewhere_learns_how(call: tuple[Any, ...], message: str) -> None:
    job = Job(lambda: [SavesAtHook(*call)])
    with pytest.raises(UserError, match=message):
        for number in (1, 2):
            job.run(number, loss=1.0)


def test_an_own_callback_may_save_the_model_at_the_end_of_an_epoch() -> None:
    job = Job(lambda: [SavesAtHook("on_epoch_end", "save_weights", "own.weights.h5")])
    job.run(1)
    job.run(2, loss=1.0)
    assert job.saved == [to_uri("own.weights.h5")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{val_loss:.2f}.keras", "an epoch has no result val_loss"),
        ("{batch}.keras", "an epoch has no result batch"),
        ("{}.keras", "a field without a name"),
        ("{epoch:zz}.keras", "Use fields such as"),
    ],
)
def test_a_file_name_that_no_epoch_can_have_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_callbacks([keras.callbacks.ModelCheckpoint(name)], PATH, job_spec(), FACTS)


def test_a_checkpoint_of_every_epoch_needs_no_validation_data(tmp_path: Path) -> None:
    every = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}-{loss}.keras")
    found = check_callbacks([every], PATH, job_spec(), FACTS)
    assert (found.names, found.checkpoint_folder) == (("ModelCheckpoint",), to_uri(tmp_path))
    assert found.model_folder == to_uri(tmp_path)
    weights = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True)
    found = check_callbacks([weights], PATH, job_spec(), FACTS)
    assert (found.checkpoint_folder, found.model_folder) == (to_uri(tmp_path), "")
    best = keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True)
    with pytest.raises(UserError, match="Give --validation_data"):
        check_callbacks([best], PATH, job_spec(), FACTS)
