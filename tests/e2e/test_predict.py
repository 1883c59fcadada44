"""``elasticdl predict``: files that hold one prediction for each record, whatever is killed meanwhile."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
import tensorflow as tf
from tests.contract.servers.s3 import S3Server
from tests.e2e.elastic import Elastic, Outcome, check_exact, write_lines
from tests.e2e.models import LINEAR, slowly, write_data, write_model

from elasticdl.shared.storage.s3_store import S3Store

TRAIN = ("--model_def=model.py", "--training_data=data", "--num_workers=1", "--seed=5")
PREDICT = ("--model_def=model.py", "--prediction_data=new", "--keep_columns=id")
RECORDS = 1500
PREDICTING = LINEAR.replace(
    'return features, tf.cast(records["y"], tf.float32)',
    'return features if mode == "predict" else (features, tf.cast(records["y"], tf.float32))',
)


EMBEDDING = """
import keras
import tensorflow as tf

from elasticdl.layers import Embedding


def custom_model():
    ids = keras.Input((1,), dtype="int64")
    row = keras.layers.Flatten()(Embedding(4, input_dim=200)(ids))
    return keras.Model(ids, {"score": keras.layers.Dense(1)(row), "row": row})


def loss(labels, predictions):
    return tf.square(labels - predictions["score"][:, 0])


def optimizer():
    return keras.optimizers.SGD(0.5)


def feed_batch(records, mode, metadata):
    return records["id"][:, tf.newaxis], tf.cast(records["id"], tf.float32)


class PredictionOutputsProcessor:
    def process(self, predictions, worker_id):
        return {**predictions, "doubled": 2 * predictions["score"]}
"""


def write_new(folder: Path) -> np.ndarray[Any, Any]:
    """Write data without labels into two files; returns the features, float32 (records, 3)."""
    values = np.random.default_rng(4).normal(size=(RECORDS, 3)).astype(np.float32)
    rows = [f"{number}," + ",".join(map(str, row)) for number, row in enumerate(values.tolist())]
    for name, part in (("a", rows[:700]), ("b", rows[700:])):
        write_lines(folder / "new" / f"{name}.csv", ["id,a,b,c", *part])
    return values


def trained(elastic: Elastic, text: str = PREDICTING) -> Outcome:
    """Train a model and export it to ``out``."""
    write_model(elastic.folder, text)
    write_data(elastic.folder)
    return elastic.train(*TRAIN, "--output=out", "--num_ps_pods=2")


def expected(elastic: Elastic, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What Keras predicts with the exported model: float32 (records,)."""
    model: Any = keras.saving.load_model(elastic.folder / "out/model.keras", compile=False)
    predictions: np.ndarray[Any, Any] = model.predict(features, verbose=0)
    return predictions[:, 0]


def published(outcome: Outcome, folder: Path, suffix: str = "parquet") -> list[Path]:
    """The files of a prediction that is exact; there is nothing else beside them."""
    assert outcome.exit_code == 0, outcome.output
    check_exact(outcome)
    files = sorted(folder.glob(f"part-*.{suffix}"))
    assert sorted(path.name for path in folder.iterdir()) == ["_SUCCESS", *(path.name for path in files)]
    assert [path.name for path in files] == [
        f"part-{number:05}-of-{len(files):05}.{suffix}" for number in range(len(files))
    ]
    report = outcome.report
    assert report["kind"] == "predict"
    assert report["audit"]["records"] == RECORDS
    assert report["predictions"] == {"files": len(files), "records": RECORDS, "format": suffix}
    return files


def test_the_predictions_are_those_of_keras_in_the_order_of_the_data(elastic: Elastic) -> None:
    job = trained(elastic).job
    features = write_new(elastic.folder)
    flags = (*PREDICT, "--minibatch_size=50", "--num_minibatches_per_task=5")
    exported = elastic.run("predict", "--model=out", "--output=predictions", *flags)
    table = pa.parquet.read_table(published(exported, elastic.folder / "predictions"))
    assert table.column_names == ["id", "prediction"]
    assert table["id"].to_pylist() == list(range(RECORDS))
    wanted = expected(elastic, features)
    assert table["prediction"].to_numpy() == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert pa.dataset.dataset(elastic.folder / "predictions").count_rows() == RECORDS

    of_job = elastic.run("predict", f"--checkpoint_dir_for_init={job}", "--output=csv", "--output_format=csv", *flags)
    rows = pa.concat_tables(pa.csv.read_csv(path) for path in published(of_job, elastic.folder / "csv", "csv"))
    assert rows["id"].to_pylist() == list(range(RECORDS))
    assert rows["prediction"].to_numpy() == pytest.approx(wanted, rel=1e-5, abs=1e-6)

    again = elastic.run("predict", "--model=out", "--output=csv", *flags)
    assert again.exit_code == 2 and "--output=csv is not empty: it holds" in again.output


def test_records_are_predicted_once_when_processes_are_killed_and_a_resume_keeps_what_is_done(elastic: Elastic) -> None:
    trained(elastic)
    features = write_new(elastic.folder)
    write_model(elastic.folder, slowly(PREDICTING, 1.0))
    flags = ("--model=out", *PREDICT, "--num_workers=2", "--minibatch_size=10", "--num_minibatches_per_task=2")
    for folder in list(elastic.jobs.iterdir()):
        folder.rename(elastic.folder / folder.name)  # ``kill`` wants the prediction to be the only job.
    with elastic.start("predict", *flags, "--output=predictions") as running:
        running.wait_for(r"predicting  batch [1-9]")
        for pod, message in (("worker-0", "worker-0 died"), ("master", "new master"), ("ps-0", "ps-0 died")):
            elastic.kill(pod)
            running.wait_for(message)
        stopped = elastic.run("stop", elastic.job)
        assert stopped.exit_code == 0, stopped.output
        running.wait()
        assert "To continue with the tasks that are not predicted yet: elasticdl resume" in running.output
    temporary = elastic.folder / "predictions/_temporary" / elastic.job
    kept = {path.name for path in temporary.iterdir()}
    assert kept and not list((elastic.folder / "predictions").glob("part-*"))
    elastic.remove_delay()
    resumed = elastic.run("resume", elastic.job)
    files = published(resumed, elastic.folder / "predictions")
    assert len(files) == 75
    table = pa.parquet.read_table(files)
    assert table["id"].to_pylist() == list(range(RECORDS))
    assert table["prediction"].to_numpy() == pytest.approx(expected(elastic, features), rel=1e-5, abs=1e-6)


def test_tables_stay_on_the_ps_and_rows_that_were_never_trained_are_those_of_the_export(
    elastic: Elastic, s3_server: S3Server
) -> None:
    s3_server.make_bucket("predictions")
    elastic.environment.update(s3_server.environment())
    write_model(elastic.folder, EMBEDDING)
    write_lines(elastic.folder / "data/ids.csv", ["id", *map(str, range(100))])
    write_lines(elastic.folder / "new/ids.csv", ["id", *(str(number % 150) for number in range(RECORDS))])
    job = elastic.train(*TRAIN, "--num_ps_pods=2", "--num_epochs=2").job
    flags = ("--keep_columns=id", "--model_def=model.py", "--prediction_data=new", "--num_ps_pods=3")
    in_bucket = "s3://predictions/out"
    done = elastic.run("predict", f"--model={job}", f"--output={in_bucket}", *flags, "--num_minibatches_per_task=2")
    assert done.exit_code == 0, done.output
    store = S3Store(s3_server.settings())
    names = [info.uri.removeprefix(in_bucket + "/") for info in store.list(in_bucket)]
    assert names == ["_SUCCESS", *(f"part-{number:05}-of-00003.parquet" for number in range(3))]
    parts = [pa.parquet.read_table(io.BytesIO(store.read(f"{in_bucket}/{name}"))) for name in names[1:]]
    table = pa.concat_tables(parts)
    assert table.column_names == ["id", "prediction_score", "prediction_row", "prediction_doubled"]
    assert table["id"].to_pylist() == [number % 150 for number in range(RECORDS)]
    score = table["prediction_score"].to_numpy()
    assert table["prediction_doubled"].to_numpy() == pytest.approx(2 * score)
    rows = np.stack(table["prediction_row"].to_pylist()).astype(np.float32)
    assert rows[:150] == pytest.approx(rows[150:300])

    exported = elastic.run("export", job, "--output=out")
    assert exported.exit_code == 0, exported.output
    records = elastic.run("predict", "--model=out", "--output=records", "--output_format=tfrecord", *flags)
    (file,) = published(records, elastic.folder / "records", "tfrecord")
    content = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    examples = [tf.train.Example.FromString(record).features.feature for record in content]
    assert [example["id"].int64_list.value[0] for example in examples] == table["id"].to_pylist()
    assert [list(example["prediction_row"].float_list.value) for example in examples] == pytest.approx(rows, rel=1e-5)
