"""Every model of the zoo keeps the contract, on the example data that is written for it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.data import DataFormat, DataSchema, Reader, ReaderOptions, RecordBlock, plan_sources
from elasticdl.shared.job.model_file import ModelFile, check_syntax
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import open_store
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule, load
from elasticdl.zoo import write

pytestmark = pytest.mark.tensorflow

ZOO = Path(__file__).resolve().parents[3] / "model_zoo"
RECORDS = 40
DATA = {"mnist_functional_api": "mnist", "census_wide_deep": "census", "deepfm": "deepfm"}
SMALL: dict[str, dict[str, object]] = {
    "mnist_functional_api": {"filters": 4, "units": 8},
    "deepfm": {"ids_per_category": 100, "width": 4, "hidden": (8,)},
}
"""Parameters that make a model quick to build."""
TABLES = {"mnist_functional_api": 0, "census_wide_deep": 16, "deepfm": 2}
"""How many tables a ps serves when it serves all of them, whatever their size."""

Raw = tuple[RecordBlock, DataSchema]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("zoo")
    write("mnist", root / "mnist")
    for name in ("census", "deepfm"):
        write(name, root / name, records=RECORDS)
    return root


def module_of(name: str) -> UserModule:
    file = ModelFile(path=ZOO / f"{name}.py")
    check_syntax(file)
    return load(file, SMALL.get(name))


def read(data: Path) -> Raw:
    """The first records, as a worker reads them."""
    store = open_store(str(data))
    planned = plan_sources(str(data), ReaderOptions(), store)
    reader = Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)
    return reader.read(Shard(source=0, start=0, end=RECORDS)), planned.schema


def fed(module: UserModule, raw: Raw, mode: str = "train") -> Batch:
    block, schema = raw
    batch = block.take(range(RECORDS))
    records = batch.records if schema.format is DataFormat.TFRECORD else batch.columns
    made = BatchFeeder(module, mode, schema.metadata).feed(records)
    assert made is not None
    return made


def rows(runner: ModelRunner, batch: Batch) -> dict[str, Any]:
    """Rows of zeros for every id that a batch asks for."""
    pulled = {}
    for table in runner.tables:
        unique, inverse = np.unique(runner.ids(batch)[table.name], return_inverse=True)
        pulled[table.name] = (np.zeros((len(unique), table.width), np.float32), inverse.astype(np.int32))
    return pulled


@pytest.mark.parametrize("name", DATA)
def test_a_model_is_trained_and_evaluated_on_its_example_data(folder: Path, name: str) -> None:
    module = module_of(name)
    batch = fed(module, read(folder / DATA[name] / "train"))
    runner = ModelRunner(module, batch, RunnerSettings(swap_bytes_min=0))
    assert len(runner.tables) == TABLES[name]
    runner.probe_metrics()
    dense, pulled = runner.initial_dense(), rows(runner, batch)
    result = runner.train(batch, dense, pulled, step_seed=1)
    assert result.finite
    assert np.any(result.dense_gradient)
    loss = runner.evaluate(batch, dense, pulled)
    metrics = runner.merge([runner.metric_states()])
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics.keys() > {"loss"}
    predictions = runner.predict(batch, dense, pulled)
    assert len(predictions) == RECORDS
    assert np.all((predictions >= 0) & (predictions <= 1))


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
    for name in ("census_wide_deep", "deepfm"):
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
