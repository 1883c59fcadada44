"""Callbacks: those that can run, and their hooks in any process compared with Keras' own loop."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.master.driver import job_spec
from tests.unit.worker_model.conftest import WriteModule

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import BestModel
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose
from elasticdl.shared.storage import to_uri
from elasticdl.shared.storage.memory_store import MemoryStore
from elasticdl.worker.core.commands import MergeResult, RunCallbacks
from elasticdl.worker.execution.callback_tasks import CallbackTasks, ModelAccess
from elasticdl.worker.model.user.callbacks.accepted import (
    ModelFacts,
    check_callbacks,
    make_callbacks,
    prepare,
    with_hooks,
)
from elasticdl.worker.model.user.callbacks.hooks import CallbackModel, Hooks
from elasticdl.worker.ps_client.requests import PinLostError

pytestmark = pytest.mark.tensorflow
DIRECTIONS = {"loss": "down", "accuracy": "up", "own": ""}
FACTS = ModelFacts(directions=DIRECTIONS)
PATH = Path("model.py")
Make = Callable[[], list[Any]]


class Job:
    """The callbacks of a job, run by as many processes as a test wants."""

    def __init__(self, make: Make, rate: float = 0.1, initial_epoch: int = 0) -> None:
        self._make = make
        self._initial_epoch = initial_epoch
        self._rate = rate
        self._store = MemoryStore()
        self.saved: list[str] = []
        """Files that were written, in their order."""
        self.summaries: list[tuple[int, bool, Mapping[str, str]]] = []
        """Epochs whose histograms were written, whether with the graph, and from which instances."""
        self.loaded: list[Mapping[str, str]] = []
        """The instances from which the model was loaded."""
        self.is_model_lost = False
        self.tasks = self._process()

    def _process(self) -> CallbackTasks:
        return CallbackTasks(self._hooks, "memory://job", self._store)

    def _hooks(self) -> Hooks:
        made = self._make()
        prepare(made, DIRECTIONS)
        access = ModelAccess(save=self._save, summarize=self._summarize, load=self._load)
        model = CallbackModel(self._rate, has_schedule=False, path=PATH, access=access)
        params = {"epochs": 9, "steps": 3, "verbose": 1}
        return Hooks(made, model, params, PATH, initial_epoch=self._initial_epoch)

    def _save(self, uri: str, instances: Mapping[str, str]) -> None:
        if self.is_model_lost:
            raise PinLostError(f"{dict(instances)} have the model")
        self.saved.append(uri)

    def _summarize(self, epoch: int, graph: bool, instances: Mapping[str, str]) -> None:
        self.summaries.append((epoch, graph, instances))

    def _load(self, instances: Mapping[str, str]) -> Any:
        self.loaded.append(instances)
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(loss="mse")
        return model

    def restart(self) -> None:
        """Another process takes over."""
        self.tasks = self._process()

    def state_bytes(self) -> list[int]:
        """The sizes of what the tasks have stored."""
        return [info.size_bytes for info in self._store.list("memory://job/callbacks/")]

    def forget(self, number: int) -> None:
        """The process of a task has died after its hooks, and before it could store their result."""
        self._store.delete(f"memory://job/callbacks/{number:08d}.json")
        self.restart()

    def run(self, number: int, *, is_last: bool = False, **logs: float) -> MergeResult:
        """Run a task of hooks."""
        instances = {} if number % 2 else {"ps-0": "ps-0-1"}
        task = TaskRef(purpose=Purpose.MERGE, number=number)
        return self.tasks.run(RunCallbacks(task=task, number=number, logs=logs, is_last=is_last, instances=instances))


def of_keras(make: Make, history: list[dict[str, float]]) -> list[tuple[bool, float]]:
    """Whether training stops, and the learning rate, after each epoch of Keras' loop."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    model.build((None, 1))
    decisions: list[tuple[bool, float]] = []
    hooks = keras.callbacks.CallbackList(make(), model=model, add_history=False, epochs=9, steps=3, verbose=1)
    model.stop_training = False
    hooks.on_train_begin()
    for epoch, logs in enumerate(history):
        hooks.on_epoch_begin(epoch)
        hooks.on_epoch_end(epoch, dict(logs))
        decisions.append((model.stop_training, float(model.optimizer.learning_rate.numpy())))
        if model.stop_training:
            break
    hooks.on_train_end()
    return decisions


def of_job(make: Make, history: list[dict[str, float]], restarts: list[bool]) -> list[tuple[bool, float]]:
    """The same for a job whose process changes before some epochs."""
    job = Job(make)
    job.run(1)
    decisions: list[tuple[bool, float]] = []
    for epoch, logs in enumerate(history):
        if restarts[epoch]:
            job.restart()
        result = job.run(2 * epoch + 2, is_last=epoch == len(history) - 1, **logs)
        decisions.append(("stop_training" in result.results, result.results["learning_rate"]))
        if "ended" in result.results:
            break
    return decisions


values = st.floats(min_value=-3, max_value=3, width=32) | st.integers(0, 3).map(float) | st.just(float("nan"))
histories = st.lists(
    st.fixed_dictionaries({"loss": values, "val_loss": values, "val_own": values}), min_size=1, max_size=8
)
early_stopping = st.fixed_dictionaries(
    {
        "monitor": st.sampled_from(["val_loss", "loss", "val_own", "val_missing"]),
        "min_delta": st.sampled_from([0, 0.5, 1]),
        "patience": st.integers(0, 3),
        "mode": st.sampled_from(["min", "max"]),
        "baseline": st.none() | st.integers(-2, 2),
        "start_from_epoch": st.integers(0, 3),
    }
)
reduce_rate = st.fixed_dictionaries(
    {
        "monitor": st.sampled_from(["val_loss", "loss"]),
        "factor": st.sampled_from([0.1, 0.5]),
        "patience": st.integers(1, 3),
        "mode": st.sampled_from(["auto", "min"]),
        "min_delta": st.sampled_from([0, 0.5]),
        "cooldown": st.integers(0, 2),
        "min_lr": st.sampled_from([0, 0.02]),
    }
)


@pytest.mark.filterwarnings("ignore:Early stopping conditioned on metric")
@settings(deadline=None)
@given(
    history=histories,
    stopping=early_stopping,
    reducing=reduce_rate,
    restarts=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_decisions_are_those_of_keras_whichever_process_makes_them(
    history: list[dict[str, float]], stopping: dict[str, Any], reducing: dict[str, Any], restarts: list[bool]
) -> None:
    def make() -> list[Any]:
        return [keras.callbacks.ReduceLROnPlateau(**reducing), keras.callbacks.EarlyStopping(**stopping)]

    expected = of_keras(make, history)
    decided = of_job(make, history, restarts)
    assert [stop for stop, _ in decided[:-1]] == [stop for stop, _ in expected[:-1]]
    assert decided == expected


@settings(deadline=None, max_examples=30)
@given(restarts=st.lists(st.booleans(), min_size=5, max_size=5), factor=st.sampled_from([0.5, 0.9]))
def test_a_schedule_of_epochs_sets_the_rate_of_the_epoch_that_begins(restarts: list[bool], factor: float) -> None:
    def make() -> list[Any]:
        return [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * factor if epoch else rate)]

    history = [{"loss": 1.0}] * 5
    expected = [rate for _, rate in of_keras(make, history)]
    # A task ends an epoch and begins the next one, so its rate is that of the next one.
    assert [rate for _, rate in of_job(make, history, restarts)][:-1] == expected[1:]


class Own(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that remembers, writes what it is called for, and stops training."""

    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.write = calls.append
        self.worst = -1.0

    def on_train_begin(self, logs: Any = None) -> None:
        self.write("begin")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.write(("epoch", epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.worst = max(self.worst, logs["loss"])
        self.write((epoch, self.worst))
        if self.worst > 4:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        self.write("end")


def test_own_hooks_run_once_in_order_whichever_process_runs_them() -> None:
    calls: list[Any] = []
    job = Job(lambda: [Own(calls)])
    for number, loss in ((1, 0.0), (2, 3.0), (2, 9.0), (4, 2.0), (6, 5.0), (6, 5.0)):
        result = job.run(number, loss=loss)
        job.restart()
    assert calls == ["begin", ("epoch", 0), (0, 3.0), ("epoch", 1), (1, 3.0), ("epoch", 2), (2, 5.0), "end"]
    assert result.note == "Own stops training"
    assert result.results == pytest.approx({"ended": 1.0, "stop_training": 1.0, "learning_rate": 0.1})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Dead processes close no files.
def test_a_csv_log_has_each_epoch_once(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    job = Job(lambda: [keras.callbacks.CSVLogger(str(file))])
    job.run(1)
    for epoch in range(4):
        job.run(2 * epoch + 2, loss=float(epoch), accuracy=0.5)
        if epoch == 2:
            job.forget(2 * epoch + 2)
            job.run(2 * epoch + 2, loss=float(epoch), accuracy=0.5)
    job.restart()
    job.run(10, is_last=True, loss=4.0, accuracy=0.5)
    with file.open() as rows:
        read = [(row["epoch"], row["loss"], row["accuracy"]) for row in csv.DictReader(rows)]
    assert read == [(str(epoch), f"{epoch}.0", "0.5") for epoch in range(5)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_a_csv_log_lacks_what_another_process_wrote_before_it_died(tmp_path: Path, epochs: int) -> None:
    file = tmp_path / "log.csv"
    job = Job(lambda: [keras.callbacks.CSVLogger(str(file))])
    job.run(1)
    for epoch in range(epochs):
        job.run(2 * epoch + 2, loss=float(epoch), val_loss=0.5)
    first, number = job.tasks, 2 * epochs + 2
    job.restart()
    job.run(number, loss=123456.789, val_loss=0.25)
    job.forget(number)
    job.tasks = first
    job.run(number, is_last=True, loss=float(epochs), val_loss=0.5)
    rows = [f"{epoch},{epoch}.0,0.5" for epoch in range(epochs + 1)]
    assert file.read_text().splitlines() == ["epoch,loss,val_loss", *rows]


class Uses(keras.callbacks.Callback):  # type: ignore[misc]
    """Uses the model at the beginning of training, or at the end of an epoch."""

    def __init__(self, use: Callable[[Any], object], *, at_begin: bool = False) -> None:
        super().__init__()
        self.use = use
        self.at_begin = at_begin
        self.seen: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        if self.at_begin:
            self.use(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(self.use(self.model))


def test_a_callback_reads_the_model_at_the_end_of_each_epoch() -> None:
    x = np.array([[3.0]])
    callbacks = [
        Uses(lambda model: float(model.predict(x, verbose=0)[0, 0])),
        Uses(lambda model: float(keras.ops.sum(model(x))) + len(model.layers) + model.count_params()),
    ]
    job = Job(lambda: callbacks)
    for number in (1, 2, 4):
        job.run(number)
    assert [each.seen for each in callbacks] == [[3.0, 3.0], [6.0, 6.0]]
    assert job.loaded == [{"ps-0": "ps-0-1"}] * 2  # Once for all hooks of an epoch.


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (
            Uses(lambda model: model.get_weights(), at_begin=True),
            r"uses self\.model\.get_weights where no epoch has ended",
        ),
        (Uses(lambda model: model(np.ones((1, 1))), at_begin=True), r"calls self\.model\(\) where no epoch has ended"),
        (
            Uses(lambda model: model.set_weights([])),
            r"calls self\.model\.set_weights\(\), but the job trains the model in",
        ),
        (Uses(lambda model: setattr(model, "beta", 1.0)), r"sets self\.model\.beta, but"),
        (Uses(lambda model: model.layers[0].bias.assign([5.0])), r"changes the weights of self\.model"),
        (Uses(lambda model: setattr(model.layers[0], "trainable", False)), "or which of them are trained"),
    ],
)
def test_a_callback_that_would_change_the_model_is_refused(callback: Uses, message: str) -> None:
    job = Job(lambda: [callback])
    with pytest.raises(UserError, match=message):
        for number in (1, 2):
            job.run(number)


def test_large_data_of_a_callback_that_stays_as_it_is_belongs_not_to_its_state() -> None:
    class Keeps(keras.callbacks.Callback):  # type: ignore[misc]
        """Has test data, and changes some of it if it is told to."""

        def __init__(self) -> None:
            super().__init__()
            self.data, self.changed = np.zeros(1 << 14), np.zeros(1 << 14)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.changed[epoch] += 1
            sums.append((self.data.sum(), self.changed.sum()))

    sums: list[tuple[float, float]] = []
    job = Job(lambda: [Keeps()])
    for number in (1, 2, 4):
        job.run(number)
        job.restart()
    assert sums == [(0, 1), (0, 2)]
    assert [size < 150_000 for size in job.state_bytes()] == [True, True, True]  # Numbers of one array, as text.


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("keras.callbacks.ModelCheckpoint('a.keras', save_freq=100)", "this save_freq, because no process sees every"),
        ("keras.callbacks.ModelCheckpoint('a.h5')", "write Keras' former HDF5 format"),
        ("OwnCheckpoint('a.keras')", r"OwnCheckpoint has on_test_end\(\)"),
        ("keras.callbacks.BackupAndRestore('a')", "elasticdl resume JOB"),
        ("keras.callbacks.LambdaCallback(on_train_batch_end=print)", r"has on_train_batch_end\(\)"),
        ("OfBatches()", r"OfBatches has on_batch_end\(\)"),
        ("'EarlyStopping'", "must return Keras callbacks, not str"),
    ],
)
def test_callbacks_that_can_not_run_are_refused_with_what_to_use_instead(
    write_module: WriteModule, callback: str, message: str
) -> None:
    own = "class OfBatches(keras.callbacks.Callback):\n    def on_batch_end(self, batch, logs=None):\n        pass\n"
    own += (
        "class OwnCheckpoint(keras.callbacks.ModelCheckpoint):\n    def on_test_end(self, logs=None):\n        pass\n"
    )
    module = write_module(f"custom_model = keras.Model\n{own}\ndef callbacks():\n    return [{callback}]\n")
    with pytest.raises(UserError, match=message):
        make_callbacks(module)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("embeddings_freq=2", "weights are on the parameter servers"),
        ("update_freq='batch'", "no process sees every batch"),
        ("update_freq=100", "no process sees every batch"),
        ("profile_batch=(2, 4)", "no process sees every batch"),
    ],
)
def test_tensorboard_refuses_what_the_master_can_not_know(
    write_module: WriteModule, argument: str, reason: str
) -> None:
    module = write_module(
        "custom_model = keras.Model\n\ndef callbacks():\n"
        f"    board = keras.callbacks.TensorBoard()\n    board.__dict__.update({attribute_of(argument)})\n"
        "    return [board]\n"
    )
    with pytest.raises(UserError, match=f"this {argument.partition('=')[0]}, because .*{reason}"):
        make_callbacks(module)


def test_a_subclass_of_tensorboard_is_refused(write_module: WriteModule) -> None:
    module = write_module(
        "custom_model = keras.Model\n\nclass Mine(keras.callbacks.TensorBoard):\n    pass\n\n"
        "def callbacks():\n    return [Mine()]\n"
    )
    with pytest.raises(UserError, match="TensorBoard needs the weights or the batches") as refused:
        make_callbacks(module)
    assert "keras.callbacks.TensorBoard itself" in refused.value.hint


def attribute_of(argument: str) -> str:
    """What an argument of TensorBoard sets; profiling itself starts when the object is made."""
    name, _, value = argument.partition("=")
    return "_should_trace=True" if name == "profile_batch" else f"{name}={value}"


def test_the_folder_of_tensorboard_is_that_of_the_flag(tmp_path: Path) -> None:
    board = keras.callbacks.TensorBoard(log_dir=tmp_path / "curves")
    made = [board, keras.callbacks.CSVLogger("log.csv")]
    found = check_callbacks(made, PATH, job_spec(), FACTS)
    assert found.tensorboard_log_dir == to_uri(tmp_path / "curves")
    assert found.names == ("CSVLogger",)
    assert [type(callback) for callback in with_hooks(made)] == [keras.callbacks.CSVLogger]
    assert "give histogram_freq" in found.notes[0]
    board.write_graph = False
    assert check_callbacks(made, PATH, job_spec(), FACTS).notes == ()
    with pytest.raises(UserError, match="different folders"):
        check_callbacks([board, keras.callbacks.TensorBoard()], PATH, job_spec(), FACTS)


def test_another_function_may_return_the_callbacks(write_module: WriteModule) -> None:
    module = write_module(
        "custom_model = keras.Model\n\ndef mine():\n"
        "    return [keras.callbacks.CSVLogger('a'), keras.callbacks.TerminateOnNaN()]\n"
    )
    assert make_callbacks(module) == []
    assert [type(callback) for callback in make_callbacks(module, "mine")] == [keras.callbacks.CSVLogger]
    with pytest.raises(UserError, match="defines no 'others'"):
        make_callbacks(module, "others")


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (keras.callbacks.EarlyStopping("val_loss"), "Give --validation_data"),
        (keras.callbacks.EarlyStopping("accurcy"), "Its metrics: loss, accuracy, own"),
        (keras.callbacks.EarlyStopping("own"), "Give mode='min' or 'max'"),
        (keras.callbacks.EarlyStopping("loss", restore_best_weights=True), "Only evaluated versions are kept"),
    ],
)
def test_what_a_callback_monitors_has_to_exist(callback: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_callbacks([callback], PATH, job_spec(), FACTS)


def test_a_schedule_and_a_callback_can_not_both_set_the_rate() -> None:
    callback = keras.callbacks.ReduceLROnPlateau("loss")
    with pytest.raises(UserError, match=r"because optimizer\(\) has a schedule"):
        check_callbacks([callback], PATH, job_spec(), replace(FACTS, has_schedule=True))


def test_restored_weights_are_those_of_the_best_model() -> None:
    spec = job_spec()
    spec = replace(spec, validation=spec.plan, evaluate_epochs=True)
    callback = keras.callbacks.EarlyStopping(
        "val_accuracy", min_delta=0.25, restore_best_weights=True, start_from_epoch=2
    )
    found = check_callbacks([callback], PATH, spec, FACTS)
    best = BestModel(metric="accuracy", is_max=True, min_delta=0.25, save=True, from_epoch=2)
    assert (found.names, found.best) == (("EarlyStopping",), best)
    with pytest.raises(UserError, match="both say which model is the best"):
        check_callbacks([callback], PATH, replace(spec, best=replace(best, metric="loss")), FACTS)


def test_a_function_that_forgets_to_return_its_callbacks_is_refused(write_module: WriteModule) -> None:
    module = write_module(RECOMMENDER_WITHOUT_RETURN)
    with pytest.raises(UserError, match=r"callbacks\(\) returns nothing, so the job would have no callbacks"):
        make_callbacks(module)


RECOMMENDER_WITHOUT_RETURN = """
def custom_model():
    return keras.Sequential([keras.Input((1,)), layers.Dense(1)])

def callbacks():
    [keras.callbacks.EarlyStopping("val_loss")]
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_callbacks_of_a_script_count_from_its_initial_epoch(tmp_path: Path) -> None:
    def make() -> list[Any]:
        rates = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 * (epoch + 1))
        return [rates, keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))]

    job = Job(make, initial_epoch=4)
    assert job.run(1).results["learning_rate"] == pytest.approx(0.5)
    assert job.run(2, loss=1.0).results["learning_rate"] == pytest.approx(0.6)
    job.forget(2)
    job.run(2, loss=1.0)
    job.run(4, is_last=True, loss=0.5)
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["epoch", "4", "5"]
