"""A model of the zoo, trained for seconds on little of its data, is better than what needs no learning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.unit.zoo.shipped import adapt_to, fed, module_of, read, with_feed

from elasticdl.layers import adapting
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.user.module import UserModule
from elasticdl.zoo import write

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def _no_adapter() -> Iterator[None]:
    yield
    adapting.use(None)


def batches(
    folder: Path, name: str, data: str, *, train: int, test: int, **params: object
) -> tuple[UserModule, Batch, Batch]:
    """The model file and its data: all records of training and test as one batch each."""
    write(data, folder, records=None if data == "mnist" else train)
    raw = read(folder / "train", train)
    adapt_to(raw)
    module = with_feed(module_of(name, params), raw, "evaluate")
    return module, fed(module, raw, "evaluate"), fed(module, read(folder / "test", test), "evaluate")


def fitted(module: UserModule, batch: Batch, *, epochs: int, size: int = 64) -> Any:
    """The model after ``fit``."""
    keras.utils.set_random_seed(1)
    model = module.make_model()
    if not model.compiled:
        model.compile(module.make_optimizer(), loss=module.required("loss"))
    model.fit(batch.features, batch.labels, batch_size=size, epochs=epochs, verbose=0)
    return model


def accuracy(model: Any, batch: Batch) -> float:
    return float(np.mean(np.argmax(model.predict(batch.features, verbose=0), axis=1) == np.asarray(batch.labels)))


def test_the_subclassed_network_knows_digits(tmp_path: Path) -> None:
    module, train, test = batches(tmp_path, "mnist_subclass", "mnist", train=1433, test=364, filters=8, units=32)
    assert accuracy(fitted(module, train, epochs=6), test) > 0.8


def test_a_narrow_resnet_knows_images(tmp_path: Path) -> None:
    module, train, test = batches(
        tmp_path, "cifar10_resnet20", "cifar10", train=1000, test=250, widths=(8, 16), blocks=1, momentum=0.7
    )
    assert accuracy(fitted(module, train, epochs=5, size=32), test) > 0.25, "a guess is right in a tenth"


def test_cross_layers_order_clicks(tmp_path: Path) -> None:
    module, train, test = batches(
        tmp_path, "dcn_v2", "deepfm", train=20_000, test=2000, ids_per_category=100, rank=8, hidden=(16,)
    )
    model = fitted(module, train, epochs=1, size=256)
    auc = keras.metrics.AUC()
    auc.update_state(test.labels, model.predict(test.features, verbose=0))
    assert float(auc.result()) > 0.65, "a guess gives 0.5"


def test_a_transformer_reads_opinions(tmp_path: Path) -> None:
    module, train, test = batches(
        tmp_path, "text_classification", "text_classification", train=3000, test=750, places=42
    )
    model = fitted(module, train, epochs=4, size=32)
    right = (model.predict(test.features, verbose=0) > 0.5) == np.asarray(test.labels)
    assert right.mean() > 0.6, "a guess is right in half"


def test_convolutions_forecast_demand(tmp_path: Path) -> None:
    module, train, test = batches(
        tmp_path, "time_series", "time_series", train=3000, test=600, filters=16, dilations=(1, 4)
    )
    forecast = fitted(module, train, epochs=3).predict(test.features, verbose=0)
    labels = np.asarray(test.labels)
    last = np.asarray(test.features["past"])[:, -1:]
    assert np.mean((forecast - labels) ** 2) < 0.5 * np.mean((last - labels) ** 2), "the last value as forecast"


def test_two_towers_find_items(tmp_path: Path) -> None:
    module, train, test = batches(tmp_path, "two_tower", "two_tower", train=20_000, test=1280, users=1000, items=500)
    model, optimizer = module.make_model(), module.make_optimizer()
    loss, in_top = module.required("loss"), module.make_metrics("eval_metrics_fn")["top10_of_batch"]

    @tf.function  # type: ignore[untyped-decorator]
    def step(features: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(labels, model(features, training=True)))
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)

    optimizer.build(model.trainable_variables)
    for start in range(0, 2 * 19_968, 128):
        part = slice(start % 19_968, start % 19_968 + 128)
        step({name: ids[part] for name, ids in train.features.items()}, train.labels[part])
    found = [
        in_top(test.labels[start : start + 128], model({n: v[start : start + 128] for n, v in test.features.items()}))
        for start in range(0, 1280, 128)
    ]
    assert np.mean(found) > 0.3, "a guess is right in 10 of 128"
