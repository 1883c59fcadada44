"""Every model of the zoo keeps the contract, on the example data that is written for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.unit.zoo import shipped
from tests.unit.zoo.shipped import ZOO, Raw, fed

from elasticdl.layers import adapting
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule, load
from elasticdl.zoo import DATA_OF_OTHERS, MODELS, write

pytestmark = pytest.mark.tensorflow

RECORDS = 40
DATA = {model: name for name, model in MODELS.items()} | dict(DATA_OF_OTHERS)
SMALL: dict[str, dict[str, object]] = {
    "mnist_functional_api": {"filters": 4, "units": 8},
    "mnist_subclass": {"filters": 4, "units": 8},
    "cifar10_resnet20": {"widths": (4, 8), "blocks": 1},
    "deepfm": {"ids_per_category": 100, "width": 4, "hidden": (8,)},
    "dcn_v2": {"ids_per_category": 100, "width": 4, "rank": 4, "hidden": (8,)},
    "two_tower": {"users": 100, "items": 100, "width": 4},
    "text_classification": {"words": 500, "width": 8},
    "time_series": {"filters": 4, "dilations": (1, 2)},
}
"""Parameters that make a model quick to build."""
TABLES = {
    "mnist_functional_api": 0,
    "mnist_subclass": 0,
    "cifar10_resnet20": 0,
    "census_wide_deep": 16,
    "deepfm": 2,
    "dcn_v2": 1,
    "two_tower": 2,
    "text_classification": 1,
    "time_series": 1,
}
"""How many tables a ps serves when it serves all of them, whatever their size."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("zoo")
    for name in MODELS:
        write(name, root / name, records=None if name == "mnist" else RECORDS)
    return root


@pytest.fixture(autouse=True)
def _no_adapter() -> Iterator[None]:
    yield
    adapting.use(None)


def module_of(name: str) -> UserModule:
    return shipped.module_of(name, SMALL.get(name))


def read(data: Path) -> Raw:
    return shipped.read(data, RECORDS)


def rows(runner: ModelRunner, batch: Batch) -> dict[str, Any]:
    """Small random rows for every id that a batch asks for."""
    pulled, random = {}, np.random.default_rng(0)
    for table in runner.tables:
        unique, inverse = np.unique(runner.ids(batch)[table.name], return_inverse=True)
        pulled[table.name] = (
            random.normal(scale=0.1, size=(len(unique), table.width)).astype(np.float32),
            inverse.astype(np.int32),
        )
    return pulled


@pytest.mark.parametrize("name", DATA)
def test_a_model_is_trained_and_evaluated_on_its_example_data(folder: Path, name: str) -> None:
    raw = read(folder / DATA[name] / "train")
    shipped.adapt_to(raw)
    module = shipped.with_feed(module_of(name), raw)
    batch = fed(module, raw)
    runner = ModelRunner(module, batch, RunnerSettings(swap_bytes_min=0))
    assert len(runner.tables) == TABLES[name]
    runner.probe_metrics()
    dense, pulled = runner.initial_dense(), rows(runner, batch)
    result = runner.train(batch, dense, pulled, step_seed=1)
    assert result.finite
    gradients = [result.dense_gradient, *result.row_gradients.values()]
    assert all(np.any(gradient) for gradient in gradients if gradient.size)
    loss = runner.evaluate(batch, dense, pulled)
    metrics = runner.merge(runner.metric_states())
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics.keys() > {"loss"}
    predictions = runner.predict(batch, dense, pulled)
    assert all(len(output) == RECORDS and np.isfinite(output).all() for output in tf.nest.flatten(predictions))


def test_every_model_has_a_data_set_and_every_data_set_a_model() -> None:
    assert {path.stem for path in ZOO.glob("*.py")} == DATA.keys()
    assert {"mnist", *DATA_OF_OTHERS.values()} <= set(MODELS)


def test_both_feeds_of_the_digits_give_the_same(folder: Path) -> None:
    raw, module = read(folder / "mnist" / "train"), module_of("mnist_functional_api")
    whole = fed(module, raw, "evaluate")
    by_record = ModuleType("without_feed_batch")
    by_record.__dict__.update({k: v for k, v in vars(module.module).items() if k != "feed_batch"})
    single = fed(UserModule(file=module.file, params=module.params, module=by_record), raw, "evaluate")
    assert single.spec.key == whole.spec.key
    assert np.array_equal(single.features, whole.features)
    assert np.array_equal(single.labels, whole.labels)


def test_digits_to_learn_from_are_moved_the_same_way_each_time(folder: Path) -> None:
    raw, module = read(folder / "mnist" / "train"), module_of("mnist_functional_api")
    moved, again, still = fed(module, raw), fed(module, raw), fed(module, raw, "evaluate")
    assert np.array_equal(moved.features, again.features)
    assert not np.array_equal(moved.features, still.features)


def test_a_record_of_the_digits_is_an_example_to_tensorflow(folder: Path) -> None:
    block, _ = read(folder / "mnist" / "train")
    assert block.lines is not None
    example = tf.train.Example.FromString(block.lines[0])
    assert len(example.features.feature["image"].bytes_list.value[0]) == 784
    assert 0 <= example.features.feature["label"].int64_list.value[0] <= 9


def test_predicting_needs_no_label(folder: Path) -> None:
    for name in ("census_wide_deep", "deepfm", "dcn_v2"):
        module = module_of(name)
        block, schema = read(folder / DATA[name] / "train")
        columns = {k: v for k, v in block.columns.items() if k not in ("label", "income_bracket")}
        batch = BatchFeeder(module, "predict", schema.metadata).feed(columns)
        assert batch is not None
        assert batch.labels is None


def test_deepfm_adds_up_its_three_parts_and_folds_ids_back() -> None:
    model = load(ModelFile(path=ZOO / "deepfm.py"), {"ids_per_category": 50, "width": 3, "hidden": ()}).make_model()
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.2, size=variable.shape))
    weight, vector = (model.get_layer(name).get_weights()[0] for name in ("id_weight", "id_vector"))
    numbers = random.normal(size=(4, 13)).astype(np.float32)
    ids = random.integers(0, 500, (4, 26))
    rows = ids % 50 + 50 * np.arange(26)
    v = vector[rows]
    kernel, bias = model.get_layer("number_weight").get_weights()
    (deep,) = model.get_layer("deep_score").get_weights()
    pairs = [sum(float(r[f] @ r[g]) for f in range(26) for g in range(f)) for r in v]
    score = weight[rows].sum(axis=(1, 2)) + (numbers @ kernel + bias)[:, 0] + np.array(pairs)
    score += (np.concatenate([v.reshape(4, -1), numbers], axis=1) @ deep)[:, 0]
    predicted = keras.ops.convert_to_numpy(model({"numbers": numbers, "categories": ids}))[:, 0]
    assert predicted == pytest.approx(1 / (1 + np.exp(-score)), rel=1e-4)
