"""One call of fit(): what it writes for the job, what it returns, and what it refuses before anything is written."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.cli.script.fit import LARGE_BYTES, fit, with_arrays
from elasticdl.cli.script.launcher import EarlyRun, Show
from elasticdl.cli.script.places import LocalPlace
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.shared.job.options import typed_values
from elasticdl.shared.job.plan import Shuffle
from elasticdl.worker.model.user.module import load

pytestmark = pytest.mark.tensorflow
X = np.arange(40, dtype="float64").reshape(10, 4)
Y = np.arange(10)
ORIGINAL = inspect.unwrap(keras.Model.fit)


@dataclass
class Jobs:
    """Stands for the processes of jobs: training sets all weights to 0.5."""

    root: Path
    flags: Any = field(default_factory=lambda: SimpleNamespace(job_name=""))
    ran: list[dict[str, Any]] = field(default_factory=list)
    interrupted: str = ""
    as_fit: bool = False
    first: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> LocalPlace:
        return LocalPlace(self.root)

    def former(self) -> str:
        return self.interrupted

    def note(self, job: str, script: Path) -> None:
        pass

    def run(
        self,
        job: str,
        values: dict[str, Any],
        *,
        quiet: bool,
        replace: tuple[str, str],
        show: Show | None = None,
        early: EarlyRun | None = None,
    ) -> None:
        self.ran.append(values | {"quiet": quiet})
        if early:
            self.first = early.first
            assert not Path(values["training_data"]).exists()
            early.write(lambda: None)
        if show:
            show({"steps": 3, "batches": 2, "loss": 2.5, "epochs": []})
            show({"steps": 3, "batches": 3, "loss": 2.0, "epochs": []})
            first = {"loss": 2.0, "mae": 1.0, "accuracy": 0.5, "learning_rate": 0.1}
            show({"steps": 3, "batches": 6, "loss": 1.5, "epochs": [first]})
            show({"steps": 3, "batches": 6, "loss": 1.5, "epochs": [{"loss": 1.5, "val_loss": 3.0}]})
        model = load(ModelFile(path=Path(values["model_def"]))).make_model()
        model.set_weights([np.full(one.shape, 0.5) for one in model.get_weights()])
        folder = self.root / job
        (folder / "output").mkdir()
        model.save_weights(folder / "output" / "model.weights.h5")
        epoch = {
            "loss": 1.5,
            "metrics": {"mae": 2.0},
            "validation": {"loss": 3.0} if "validation_data" in values else {},
            "learning_rate": 0.1,
        }
        history = {"epochs": [epoch] * values["num_epochs"]}
        epochs = values["num_epochs"]
        plan = {"batches": 3 * epochs, "epochs_run": epochs}
        (folder / "report.json").write_text(json.dumps({"history": history, "plan": plan}))


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "jobs")


def linear(**compiled: Any) -> Any:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(**({"optimizer": "sgd", "loss": "mse", "metrics": ["mae"]} | compiled))
    return model


def call(jobs: Jobs, model: Any, *args: Any, **kwargs: Any) -> Any:
    return fit(model, ORIGINAL, args, kwargs, jobs, Path("/nowhere/script.py"))  # type: ignore[arg-type]


def test_the_job_of_large_arrays_begins_with_the_records_of_a_batch(jobs: Jobs) -> None:
    x = np.arange(LARGE_BYTES // 4, dtype="float32").reshape(-1, 4)
    call(jobs, linear(), x, x[:, 0], 5, verbose=0, validation_data=(x[:7], x[:7, 0]))
    (values,) = jobs.ran
    for flag, records in (("training_data", len(x)), ("validation_data", 7)):
        with np.load(values[flag]) as data, np.load(jobs.first[flag]) as first:
            assert len(data["x"]) == records
            assert first["x"].tolist() == x[:5].tolist()
            assert first["y"].tolist() == x[:5, 0].tolist()


def test_a_call_becomes_a_job_and_its_result_that_of_the_call(jobs: Jobs) -> None:
    model = linear()
    history = call(jobs, model, X, Y, 4, 5, verbose=0, validation_split=0.25, initial_epoch=2)
    assert history.history == {"loss": [1.5] * 3, "mae": [2.0] * 3, "val_loss": [3.0] * 3}
    assert history.epoch == [2, 3, 4]
    assert history.params == {"verbose": 0, "epochs": 5, "steps": 3}
    assert model.history is history
    assert [weights.flatten().tolist() for weights in model.get_weights()] == [[0.5] * 4, [0.5]]
    (values,) = jobs.ran
    assert values["num_epochs"] == 3
    assert (values["minibatch_size"], values["shuffle"], values["quiet"]) == (4, "global", True)
    with np.load(values["training_data"]) as training, np.load(values["validation_data"]) as validation:
        assert training["x"].dtype == np.float32
        assert (training["y"].tolist(), validation["y"].tolist()) == ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9])


def test_a_model_without_weights_gets_those_of_a_job_that_a_former_run_of_the_script_had(jobs: Jobs) -> None:
    call(jobs, linear(), X, Y, epochs=2, verbose=0)
    (folder,) = jobs.root.iterdir()
    model, dataset = linear(), tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    history = call(Jobs(jobs.root, interrupted=folder.name), model, dataset, epochs=2)
    assert history.history["loss"] == [1.5] * 2
    assert [weights.flatten().tolist() for weights in model.get_weights()] == [[0.5] * 4, [0.5]]


def test_the_model_file_gives_workers_what_fit_was_given(jobs: Jobs) -> None:
    inputs = {"a": keras.Input((2,), name="a"), "b": keras.Input((2,), name="b")}
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs["a"] + inputs["b"]))
    model.compile("adam", "mse")
    stop = keras.callbacks.EarlyStopping(patience=7)
    given = {"a": X[:, :2], "b": X[:, 2:]}
    call(jobs, model, given, Y, shuffle=False, callbacks=[stop], class_weight={0: 2.0}, validation_data=(given, Y))
    (values,) = jobs.ran
    values.pop("quiet")
    assert typed_values(TrainFlags, json.loads(json.dumps(values)))["shuffle"] is Shuffle.NONE
    module = load(ModelFile(path=Path(values["model_def"])))
    assert module.value("class_weight") == {0: 2.0}
    assert [one.patience for one in module.required("callbacks")()] == [7]
    feed = module.required("feed_batch")
    features, labels = feed({"x.a": "A", "x.b": "B", "y": "Y"}, "train", None)
    assert (features, labels) == ({"a": "A", "b": "B"}, "Y")
    assert feed({"x.a": "A", "x.b": "B"}, "predict", None) == {"a": "A", "b": "B"}


def test_weights_of_one_data_set_are_1_in_the_other(jobs: Jobs) -> None:
    call(jobs, linear(), X, Y, sample_weight=np.arange(10), validation_data=(X[:3], Y[:3]))
    (values,) = jobs.ran
    with np.load(values["training_data"]) as training, np.load(values["validation_data"]) as validation:
        assert training["sample_weight"].tolist() == list(range(10))
        assert validation["sample_weight"].tolist() == [1, 1, 1]


def test_callbacks_that_set_the_learning_rate_are_in_the_history_and_in_the_optimizer(jobs: Jobs) -> None:
    model = linear()
    history = call(jobs, model, X, Y, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)])
    assert history.history == {"loss": [1.5], "mae": [2.0], "learning_rate": [0.1]}
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1)


def test_the_next_call_continues_the_optimizer_or_says_that_it_starts_from_scratch(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    model, said = linear(optimizer="adam"), []

    def fit_and_note() -> None:
        call(jobs, model, X, Y, verbose=0)
        said.append(capsys.readouterr().out)

    fit_and_note()
    fit_and_note()
    model.set_weights([one + 1 for one in model.get_weights()])
    fit_and_note()
    model.compile("adam", "mse")
    fit_and_note()
    model.compile("adam", "mse")
    model.train_on_batch(X, Y)
    fit_and_note()
    first, second, *others = jobs.ran
    assert second["initial_optimizer"] is True
    assert (jobs.root / second["initial_model"] / "report.json").exists()
    assert not any("initial_model" in values for values in (first, *others))
    name = f"The optimizer of {model.name} starts from scratch"
    assert (said[0], said[1], said[3]) == ("", "", "")
    assert said[2].startswith(f"{name}: the script has changed weights since job script-")
    assert said[4] == f"{name}: its state is from load_model() or from training in the script, and not from a job.\n"


def test_the_optimizers_of_a_step_continue_in_a_ring(jobs: Jobs) -> None:
    jobs.flags.distribution_strategy = "AllreduceStrategy"
    model = Pair()
    model.compile("sgd")
    for _ in range(2):
        call(jobs, model, X)
    assert ["initial_optimizer" in values for values in jobs.ran] == [False, True]


def test_the_progress_is_that_of_keras_on_request(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.as_fit = True
    call(jobs, linear(), X, Y, epochs=4, initial_epoch=2)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).replace("\b", "")
    ends = [line.rpartition("\r")[2].strip() for line in shown.split("\n") if line.strip()]
    assert ends[0].startswith("Preparing job script-")
    assert (ends[1], ends[3]) == ("Epoch 3/4", "Epoch 4/4")
    # Keras' order, which is not that of the facts; a rate only with a callback that notes it.
    assert re.fullmatch(r"3/3 \S+ \d+s \S+ - loss: 2.0000 - accuracy: 0.5000 - mae: 1.0000", ends[2])
    assert re.fullmatch(r"3/3 \S+ \d+s \S+ - loss: 1.5000 - val_loss: 3.0000", ends[4])
    assert jobs.ran[0]["quiet"] is True


class Trained(keras.Model):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.parametrize(
    ("make", "given", "says"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(1)]), {}, "is not compiled"),
        (linear, {"validation_freq": 2}, "validation_freq=2"),
        (linear, {"shuffle": "batch"}, "shuffle='batch'"),
        (linear, {"class_weight": {0: 1.0}, "sample_weight": Y}, "class_weight and sample_weight"),
        (
            linear,
            {"initial_epoch": 1, "epochs": 2, "callbacks": keras.callbacks.EarlyStopping(start_from_epoch=3)},
            "initial_epoch and the callback EarlyStopping",
        ),
        (linear, {"validation_split": 0.95}, "leaves one part without records"),
        (linear, {"validation_data": (X,)}, "the training data of fit\\(\\) has x, y"),
        (linear, {"y": Y[:3]}, "x has 10, y has 3"),
    ],
)
def test_what_no_job_can_do_is_refused_and_leaves_nothing(
    jobs: Jobs, make: Callable[[], Any], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        call(jobs, make(), **({"x": X, "y": Y} | given))
    assert jobs.ran == []
    assert not list(jobs.root.glob("*"))


def test_a_model_that_only_its_train_step_can_build_is_built(jobs: Jobs) -> None:
    class Coder(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = keras.layers.Dense(2), keras.layers.Dense(4)

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(keras.ops.square(self.decoder(self.encoder(data)) - data))
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    model = Coder()
    model.compile("sgd")
    assert call(jobs, model, X).history == {"loss": [1.5], "mae": [2.0]}
    assert [one.shape for one in model.get_weights()] == [(4, 2), (2,), (2, 4), (4,)]
    with pytest.raises(UserError, match=r"Coder has neither call\(\) nor test_step\(\)"):
        call(jobs, model, X, validation_split=0.2)


def test_what_a_train_step_takes_may_be_something_else_than_x_and_y(jobs: Jobs) -> None:
    class Pairs(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = keras.layers.Dense(2)

        def call(self, pair: Any) -> Any:
            return keras.ops.sum(keras.ops.square(self.encoder(pair[0]) - self.encoder(pair[1])), axis=-1)

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(self(data))
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    model = Pairs()
    model.compile("sgd")
    call(jobs, model, tf.data.Dataset.from_tensor_slices((X, X + 1)).batch(5))
    assert [one.shape for one in model.get_weights()] == [(4, 2), (2,)]


class Pair(keras.Model):  # type: ignore[misc]
    """Two layers with an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = keras.layers.Dense(2), keras.layers.Dense(4)
        self.first, self.second = keras.optimizers.Adam(), keras.optimizers.SGD(0.1)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            loss = keras.ops.mean(keras.ops.square(self.decoder(self.encoder(data)) - data))
        for layer, optimizer in ((self.encoder, self.first), (self.decoder, self.second)):
            optimizer.apply(tape.gradient(loss, layer.trainable_weights), layer.trainable_weights)
        return {"loss": loss}


def test_several_optimizers_are_refused_before_anything_else(jobs: Jobs) -> None:
    model = Trained()
    model.compile()
    model.first, model.second = keras.optimizers.SGD(), keras.optimizers.Adam()
    with pytest.raises(UserError, match=r"Trained has 2 optimizers \(first, second\)"):
        call(jobs, model, object())
    jobs.flags.distribution_strategy = "AllreduceStrategy"
    with pytest.raises(UserError, match="object"):
        call(jobs, model, object())


def test_a_call_without_epochs_starts_no_job(jobs: Jobs) -> None:
    assert call(jobs, linear(), X, Y, epochs=3, initial_epoch=3).history == {}
    assert jobs.ran == []


def test_a_resumed_script_gives_an_unbuilt_model_the_weights_of_its_job(jobs: Jobs, tmp_path: Path) -> None:
    call(jobs, linear(), X, Y)
    (folder,) = jobs.root.iterdir()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5)
    for given in ((X, Y), (data,)):
        again = Jobs(jobs.root)
        again.former = lambda: folder.name  # type: ignore[method-assign]
        model = linear()
        assert call(again, model, *given).history == {"loss": [1.5], "mae": [2.0]}
        assert [weights.flatten().tolist() for weights in model.get_weights()] == [[0.5] * 4, [0.5]]


def test_a_metric_that_is_an_array_is_one_in_the_history() -> None:
    logs = {"f1.0": 0.25, "f1.1": 0.5, "top.1": 0.75, "val_f1.1": 2.0, "val_f1.0": 1.0, "loss": 3.0}
    found = with_arrays(logs)
    assert {name: np.asarray(value).tolist() for name, value in found.items()} == {
        "f1": [0.25, 0.5],
        "top.1": 0.75,
        "val_f1": [1.0, 2.0],
        "loss": 3.0,
    }
