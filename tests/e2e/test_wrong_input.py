"""Wrong input gets one clear message that names the thing, the place and what to do; never a traceback."""

from __future__ import annotations

import signal
import struct
from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.failing import FLAGS, fails
from tests.e2e.models import FEED, LINEAR, SLOW, write_data, write_model


@pytest.mark.parametrize(
    ("model_def", "text", "exit_code", "says"),
    [
        ("nothere.py", LINEAR, 2, ["nothere.py"]),
        ("model.py:custom_mode", LINEAR, 1, ["custom_mode", "custom_model"]),
        ("model.py", LINEAR + "\ndef broken(:\n", 1, ["model.py", "line"]),
        (
            "model.py",
            LINEAR.replace("def loss", "def los"),
            1,
            ["model.py does not define 'loss'", "Did you mean 'los'?"],
        ),
    ],
)
def test_model_files_are_checked_before_anything_starts(
    elastic: Elastic, model_def: str, text: str, exit_code: int, says: list[str]
) -> None:
    write_model(elastic.folder, text)
    write_data(elastic.folder)
    fails(elastic, f"--model_def={model_def}", "--training_data=data", says=says, exit_code=exit_code)
    assert not list(elastic.jobs.glob("*/logs/worker-0.log"))


@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["train", "dry run"])
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("keras.layers.Dense(1)", "keras.layers.Dens(1)", ["Dens", "model.py:8", "keras.layers.Dens(1)(inputs)"]),
        ("return features,", "return {'other': features},", ["input_layer", "other"]),
        (
            "labels - predictions[:, 0]",
            "labels[:7] - predictions[:, 0]",
            ["loss() of model.py", "labels[:7] - predictions[:, 0]"],
        ),
        ("tf.square(labels", "tf.math.log(labels * 0 - 1", ["the loss is nan for the first batch"]),
        ('records["y"], tf.float32)', 'records["y"], tf.float32), None, 1', ["feed_batch() must give"]),
        ("return keras.optimizers", "return keras.losses and 1 or keras.optimizers", ["optimizer() must return"]),
        (
            "keras.layers.Dense(1)(inputs)",
            "keras.layers.Dense(1)(keras.layers.Embedding(1 << 20, 1)(inputs > 0)[:, 0]) * float('nan')",
            ["the loss is nan for the first batch"],
        ),
        (
            "tf.square(labels - predictions[:, 0]))\n\n\ndef optimizer():\n    return keras.optimizers.SGD(0.05)",
            (
                "labels - predictions[:, 0] + tf.sqrt(predictions[:, 0] - predictions[:, 0]))\n\n\n"
                "def optimizer():\n    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))"
            ),
            ["a gradient is NaN or infinite, also with the smallest loss scale of 3.05176e-05 for the first batch"],
        ),
        ("keras.Input((3,))", "exit()", ["custom_model() of model.py raised SystemExit at model.py:7: the code calls"]),
    ],
    ids=[
        "layer",
        "feature names",
        "loss shape",
        "loss value",
        "feed",
        "optimizer",
        "loss with rows of a ps",
        "NaN gradient",
        "exit",
    ],
)
def test_a_wrong_model_is_refused_before_anything_starts(
    elastic: Elastic, old: str, new: str, says: list[str], dry: list[str]
) -> None:
    assert old in LINEAR
    write_model(elastic.folder, LINEAR.replace(old, new))
    write_data(elastic.folder)
    fails(elastic, *FLAGS, *dry, says=says)
    assert not elastic.jobs.exists() or not list(elastic.jobs.iterdir())


def test_a_dry_run_tries_the_model_and_leaves_nothing(elastic: Elastic) -> None:
    write_model(elastic.folder, LINEAR.replace("    inputs =", "    print('making it')\n    inputs ="))
    write_data(elastic.folder)
    temporary = elastic.folder / "temporary"
    temporary.mkdir()
    elastic.environment["TMPDIR"] = str(temporary)
    outcome = elastic.run("train", *FLAGS, "--output=out", "--dry_run", "--validation_data=data")
    assert outcome.exit_code == 0, outcome.output
    for line in ("making it", "dense variables: 4 trainable of 4 floats", "computed the gradients of one batch"):
        assert line in outcome.output
    assert sorted(path.name for path in elastic.folder.iterdir()) == ["data", "model.py", "temporary"]
    assert not list(temporary.iterdir())


def test_a_process_that_ends_in_the_model_check_is_reported_with_what_it_ran(elastic: Elastic) -> None:
    write_model(elastic.folder, LINEAR + "\nimport os\nos._exit(7)\n")
    write_data(elastic.folder)
    says = ["the model check did not finish: its process ended with exit code 7 while importing model.py."]
    output = fails(elastic, *FLAGS, "--dry_run", says=says)
    assert "oneDNN" not in output


@pytest.mark.parametrize("record", [3, 1234], ids=["of the batch that the model is built with", "of a later task"])
def test_a_feed_that_raises_names_the_record(elastic: Elastic, record: int) -> None:
    write_model(elastic.folder, FEED)
    data = write_data(elastic.folder)
    lines = data.read_text().splitlines()
    lines[record + 1] = "0.1,0.2,oops,0.3"
    # Columns of text and numbers mixed are text: it is the model that cannot read them.
    data.write_text("\n".join(lines) + "\n")
    fails(elastic, *FLAGS, "--shuffle=none", says=[f"record {record} (from 0)", "train.csv", "oops"])


def test_a_row_with_too_few_columns_names_the_record(elastic: Elastic) -> None:
    write_model(elastic.folder)
    data = write_data(elastic.folder)
    lines = data.read_text().splitlines()
    lines[500] = "0.1,0.2"
    data.write_text("\n".join(lines) + "\n")
    fails(elastic, *FLAGS, says=["train.csv", "record 499"])


def test_a_truncated_tfrecord_names_file_and_record(elastic: Elastic) -> None:
    from elasticdl.shared.data.formats import tfrecord

    write_model(elastic.folder, FEED)
    path = elastic.folder / "data" / "a.tfrecord"
    path.parent.mkdir()
    tfrecord.write_records(path, [struct.pack("<f", number) for number in range(100)])
    path.write_bytes(path.read_bytes()[:-7])
    fails(elastic, *FLAGS, says=["a.tfrecord", "record 99"])


def test_a_nan_loss_stops_the_job_and_says_since_when(elastic: Elastic) -> None:
    write_model(elastic.folder, LINEAR.replace("SGD(0.05)", "SGD(1e20)"))
    write_data(elastic.folder)
    output = fails(elastic, *FLAGS, says=["learning rate", "start a new job"])
    assert output.count("since step") == 1
    assert "resume" not in output


@pytest.mark.parametrize(("record", "records"), [(0, "records 0 to 63"), (700, "records 640 to 703")])
def test_a_record_that_crashes_the_worker_is_named(elastic: Elastic, record: int, records: str) -> None:
    crash = LINEAR.replace(
        "    features = tf.stack", "    tf.numpy_function(crash, [records['a']], [])\n    features = tf.stack"
    )
    crash += "\n\ndef crash(column):\n    if column.max() > 100:\n        import os\n        os.abort()\n"
    write_model(elastic.folder, crash)
    data = write_data(elastic.folder)
    lines = data.read_text().splitlines()
    lines[record + 1] = "1000.0,0.1,0.1,0.1"
    data.write_text("\n".join(lines) + "\n")
    fails(elastic, *FLAGS, "--shuffle=none", says=["train.csv", records])


def test_an_empty_data_set(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=0)
    fails(elastic, *FLAGS, says=["data has no records"])


def test_an_output_folder_that_can_not_be_written(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    (elastic.folder / "occupied").write_text("a file")
    fails(elastic, *FLAGS, "--output=occupied/model", says=["occupied"])


def test_no_server_at_the_nats_url(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    fails(elastic, *FLAGS, "--nats_url=nats://127.0.0.1:1", "--dry_run", says=["--nats_url", "127.0.0.1:1"])


@pytest.mark.parametrize("records", [1, 5])
def test_fewer_records_than_a_batch_and_fewer_tasks_than_workers_work(elastic: Elastic, records: int) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=records)
    outcome = elastic.train("--model_def=model.py", "--training_data=data", "--num_workers=2")
    assert outcome.report["audit"]["records"] == records


def test_what_comes_later_is_refused_in_one_sentence(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=10)
    flags = ("--distribution_strategy=AllreduceStrategy", "--max_staleness=2")
    output = fails(elastic, *FLAGS, *flags, says=["AllreduceStrategy"], exit_code=2)
    assert len(output.strip().splitlines()) <= 4
    for command in ("evaluate", "predict"):
        outcome = elastic.run(command)
        assert outcome.exit_code == 2
        assert command in outcome.output


def test_data_that_changed_before_a_resume_is_refused(elastic: Elastic, tmp_path: Path) -> None:

    model = write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=20_000)
    with elastic.start("train", "--model_def=model.py", "--training_data=data", "--minibatch_size=32") as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
    job = elastic.job
    model.write_text(SLOW + "\n# edited\n")
    edited = elastic.run("resume", job)
    assert edited.exit_code == 1
    assert "model.py" in edited.output
    model.write_text(SLOW)
    write_data(elastic.folder, records=20_000, seed=99)
    changed = elastic.run("resume", job)
    assert changed.exit_code == 1
    assert "train.csv" in changed.output
