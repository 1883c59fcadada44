from __future__ import annotations

import csv
import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.zoo import DATA_SETS, best_reachable, census, cifar10, deepfm, mnist, two_tower, write, writing


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("part-*"))}


@pytest.mark.parametrize(("name", "records"), [(name, None if name == "mnist" else 300) for name in DATA_SETS])
def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, name: str, records: int | None) -> None:
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        write(name, tmp_path / folder, records=records, seed=seed)
    assert files(tmp_path / "a") == files(tmp_path / "b") != files(tmp_path / "c")


def test_the_digits_are_split_by_class_and_lose_none(tmp_path: Path) -> None:
    summary = write("mnist", tmp_path)
    assert (summary.train_records, summary.test_records) == (1433, 364)
    images, labels = mnist.read_images(summary.train)
    test_images, test_labels = mnist.read_images(summary.test)
    assert images.shape == (1433, 28, 28)
    assert images.dtype == np.uint8
    for label in range(10):
        share = np.count_nonzero(test_labels == label) / np.count_nonzero(np.append(labels, test_labels) == label)
        assert share == pytest.approx(mnist.TEST_SHARE, abs=0.01)
    everything = {image.tobytes() for image in (*images, *test_images)}
    assert len(everything) == 1797


def test_upscaling_keeps_constant_images_and_straight_ramps() -> None:
    assert mnist.upscale(np.full((1, 8, 8), 7.0)) == pytest.approx(7.0)
    ramp = mnist.upscale(np.tile(np.arange(8.0), (1, 8, 1)))[0]
    inner = (np.arange(28) + 0.5) * 8 / 28 - 0.5
    assert ramp[10] == pytest.approx(np.clip(inner, 0, 7))


def idx(elements: np.ndarray) -> bytes:
    return struct.pack(f">4B{elements.ndim}I", 0, 0, 8, elements.ndim, *elements.shape) + elements.tobytes()


def write_idx(folder: Path, change: Callable[[str, bytes], bytes] = lambda name, data: data) -> None:
    """The four MNIST files with a few random images, half of them packed."""
    random = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for part, count in (("train", 12), ("t10k", 5)):
        images = idx(random.integers(0, 256, (count, 28, 28), np.uint8))
        labels = idx(random.integers(0, 10, count, np.uint8))
        name = f"{part}-images-idx3-ubyte"
        (folder / f"{name}.gz").write_bytes(gzip.compress(change(name, images)))
        name = f"{part}-labels-idx1-ubyte"
        (folder / name).write_bytes(change(name, labels))


def test_real_mnist_files_are_converted(tmp_path: Path) -> None:
    write_idx(tmp_path / "idx")
    summary = write("mnist", tmp_path / "out", source=tmp_path / "idx")
    assert (summary.train_records, summary.test_records) == (12, 5)
    images, labels = mnist.read_images(summary.test)
    raw = gzip.decompress((tmp_path / "idx" / "t10k-images-idx3-ubyte.gz").read_bytes())
    assert images.tobytes() == raw[16:]
    assert bytes(labels.astype(np.uint8)) == (tmp_path / "idx" / "t10k-labels-idx1-ubyte").read_bytes()[8:]


@pytest.mark.parametrize(
    ("name", "broken", "says"),
    [
        ("t10k-labels-idx1-ubyte", lambda data: data[:-1], "has 4 elements; its header says 5"),
        ("t10k-labels-idx1-ubyte", lambda data: b"<html>" + data, "is not an IDX file"),
        ("train-labels-idx1-ubyte", lambda data: idx(np.zeros(11, np.uint8)), r"\(11,\)"),
        ("train-images-idx3-ubyte", lambda data: idx(np.zeros((12, 8, 8), np.uint8)), r"\(12, 8, 8\)"),
    ],
)
def test_broken_mnist_files_are_named(tmp_path: Path, name: str, broken: Callable[[bytes], bytes], says: str) -> None:
    write_idx(tmp_path, lambda file, data: broken(data) if file == name else data)
    with pytest.raises(UserError, match=says) as caught:
        write("mnist", tmp_path / "out", source=tmp_path)
    assert name in str(caught.value)


def test_missing_mnist_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train-images-idx3-ubyte"):
        write("mnist", tmp_path / "out", source=tmp_path / "nowhere")


def test_more_clicks_mean_more_files_and_the_same_ones_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepfm, "RECORDS_PER_FILE", 200)
    write("deepfm", tmp_path / "few", records=400)
    write("deepfm", tmp_path / "many", records=1000)
    few, many = (files(tmp_path / name / "train") for name in ("few", "many"))
    assert few.items() <= many.items()
    assert len(many) == 5


def test_click_logs_have_criteos_shape_and_the_planted_rate(tmp_path: Path) -> None:
    summary = write("deepfm", tmp_path, records=20_000)
    table = pq.read_table(summary.train)
    assert table.column_names == ["label", *(f"i{n}" for n in range(1, 14)), *(f"c{n}" for n in range(1, 27))]
    for column, size in zip((f"c{n}" for n in range(1, 27)), deepfm.VOCABULARIES, strict=True):
        ids = table[column].to_numpy()
        assert ids.min() == 0, "the most popular id is drawn"
        assert ids.max() < size
    assert 0.1 < table["label"].to_numpy().mean() < 0.6


def test_the_pairs_of_the_generating_model_are_summed_as_defined() -> None:
    model = deepfm.ClickModel.random(5)
    random = np.random.default_rng(1)
    ids = model.draw_ids(4, random)
    numbers = [random.standard_normal(4, np.float32) for _ in range(deepfm.NUMBERS)]
    for record, probability in enumerate(model.probabilities(numbers, ids)):
        rows = [factors[column[record]] for factors, column in zip(model.factors, ids, strict=True)]
        score = deepfm._BIAS + sum(float(w * x[record]) for w, x in zip(model.numbers, numbers, strict=True))
        score += sum(float(weights[column[record]]) for weights, column in zip(model.weights, ids, strict=True))
        score += sum(float(rows[f] @ rows[g]) for f in range(len(rows)) for g in range(f))
        assert probability == pytest.approx(1 / (1 + np.exp(-score)), rel=1e-4)


@pytest.mark.parametrize("name", ["census", "deepfm", "text_classification"])
def test_the_best_reachable_score_is_kept_beside_the_data(tmp_path: Path, name: str) -> None:
    summary = write(name, tmp_path, records=8000)
    assert 0.75 < summary.best["auc"] < 0.97
    assert best_reachable(summary.test) == summary.best
    assert best_reachable(summary.train) == {}
    assert json.loads((tmp_path / "about.json").read_text())["test_records"] == summary.test_records


@pytest.mark.parametrize("about", ["", "[]", "{}", '{"best": 3}', '{"best": {"auc": "high"}}'])
def test_the_best_score_of_foreign_data_is_unknown(tmp_path: Path, about: str) -> None:
    (tmp_path / "about.json").write_text(about)
    assert best_reachable(tmp_path / "test") == {}


def test_the_best_accuracy_on_images_is_that_of_the_known_probabilities(tmp_path: Path) -> None:
    """The product of two images is computed by a Fourier transform; here it is a sum over pixels."""
    summary = write("cifar10", tmp_path, records=8)
    images, labels = cifar10.read_images(summary.test)
    assert images.shape == (2, 32, 32, 3)
    patterns = cifar10._patterns(0)
    for image, found in zip(images, cifar10.likelihoods(images, patterns), strict=True):
        values, size = (image - 128.0) / 40.0, patterns.shape[1]
        exact = [
            np.logaddexp.reduce(
                [
                    -(np.sum((values[row : row + size, column : column + size] - pattern) ** 2)
                      - np.sum(values[row : row + size, column : column + size] ** 2)) / 2
                    for row in range(33 - size)
                    for column in range(33 - size)
                ]
            )
            for pattern in patterns
        ]  # fmt: skip
        assert found - found[0] == pytest.approx(np.array(exact) - exact[0])
    assert 0 <= summary.best["accuracy"] <= 1
    assert set(labels) <= set(range(10))


def test_real_cifar_files_are_converted(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    raw = random.integers(0, 256, (3, 1 + 3072), np.uint8)
    raw[:, 0] = (9, 0, 4)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (tmp_path / name).write_bytes(raw.tobytes())
    summary = write("cifar10", tmp_path / "out", source=tmp_path)
    assert (summary.train_records, summary.test_records, dict(summary.best)) == (15, 3, {})
    images, labels = cifar10.read_images(summary.test)
    assert labels.tolist() == [9, 0, 4]
    assert images[1, 5, 7].tolist() == [raw[1, 1 + 1024 * channel + 32 * 5 + 7] for channel in range(3)]
    (tmp_path / "data_batch_2.bin").write_bytes(raw.tobytes()[1:])
    with pytest.raises(UserError, match=r"data_batch_2\.bin is not a file of CIFAR-10's binary version"):
        write("cifar10", tmp_path / "out", source=tmp_path)


def test_purchases_follow_the_tastes_that_the_best_ranking_uses(tmp_path: Path) -> None:
    summary = write("two_tower", tmp_path, records=5000)
    table = pq.read_table(summary.train)
    users, items = (table[name].to_numpy() for name in ("user", "item"))
    scores_of_all = two_tower.true_scores(0)
    assert two_tower.recall(scores_of_all, users, items) == pytest.approx(summary.best["recall_at_10"], abs=0.05)
    shuffled = np.random.default_rng(0).permutation(items)
    assert two_tower.recall(scores_of_all, users, shuffled) < summary.best["recall_at_10"] / 3


def test_reviews_have_one_topic_each(tmp_path: Path) -> None:
    summary = write("text_classification", tmp_path, records=50)
    (path,) = summary.train.iterdir()
    reviews = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(reviews) == 50
    assert {review["label"] for review in reviews} == {0, 1}
    lengths = [len(review["text"].split()) for review in reviews]
    assert min(lengths) >= 11 and max(lengths) <= 41, "10 to 40 words and the topic"


def test_windows_of_demand_overlap_and_the_noise_is_the_best_error(tmp_path: Path) -> None:
    summary = write("time_series", tmp_path, records=300)
    table = pq.read_table(summary.train)
    assert str(table.schema.field("past").type) == "fixed_size_list<element: float>[48]"
    past, following = np.array(table["past"].to_pylist(), np.float32), table["demand"].to_numpy()
    windows = {np.append(window, value)[1:].tobytes() for window, value in zip(past, following, strict=True)}
    shared = [window.tobytes() in windows for window in past]
    assert np.mean(shared) > 0.5, "a window of a site ends with the value that follows the window before it"
    assert summary.best["mse"] == pytest.approx(0.3**2, rel=0.4)
    assert set(table["hour"].to_pylist()) == set(range(24))


def test_people_are_plausible(tmp_path: Path) -> None:
    summary = write("census", tmp_path, records=2000)
    (path,) = summary.train.iterdir()
    people = list(csv.DictReader(path.read_text().splitlines()))
    assert len(people) == 2000
    assert {person["relationship"] for person in people if person["marital_status"] == "Married"} == {"Husband", "Wife"}
    assert {(p["sex"], p["relationship"]) for p in people} & {("Female", "Husband"), ("Male", "Wife")} == set()
    assert {person["occupation"] for person in people} == set(census.OCCUPATIONS)


def test_files_of_an_earlier_run_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepfm, "RECORDS_PER_FILE", 100)
    write("deepfm", tmp_path, records=500)
    write("deepfm", tmp_path, records=200)
    assert pq.read_table(tmp_path / "train").num_rows == 200


def test_strangers_files_are_not_mixed_with_ours(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "my.csv").write_text("a\n1\n")
    with pytest.raises(UserError, match=r"my\.csv"):
        write("census", tmp_path, records=10)
    assert (tmp_path / "train" / "my.csv").exists()


def test_wrong_wishes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=", ".join(DATA_SETS)) as caught:
        write("imagenet", tmp_path)
    assert caught.value.usage
    with pytest.raises(UserError, match="--records can't be used with mnist"):
        write("mnist", tmp_path, records=3)
    with pytest.raises(UserError, match="--source can't be used with census"):
        write("census", tmp_path, source=tmp_path)
    with pytest.raises(UserError, match="--records=0"):
        write("deepfm", tmp_path, records=0)
    with pytest.raises(UserError, match="file"):
        write("census", tmp_path / "file", records=10)
    with pytest.raises(UserError, match="--records can't be used with cifar10 and --source"):
        write("cifar10", tmp_path, records=3, source=tmp_path)


def test_auc_counts_pairs_and_ties_half() -> None:
    random = np.random.default_rng(2)
    labels, values = random.random(200) < 0.3, np.round(random.random(200), 1)
    positive, negative = values[labels], values[~labels]
    pairs = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    assert writing.auc(labels, values) == pytest.approx(pairs)
    assert np.isnan(writing.auc(np.ones(3, bool), np.arange(3.0)))


def test_log_loss_is_that_of_the_definition() -> None:
    assert writing.log_loss(np.array([True, False]), np.array([0.8, 0.4])) == pytest.approx(
        -(np.log(0.8) + np.log(0.6)) / 2
    )
