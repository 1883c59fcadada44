"""Training jobs from the command line to the exported model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model

PREDICT = """
import json, sys
import numpy as np, keras
images = np.load(sys.argv[2])
if sys.argv[1].endswith(".keras"):
    predictions = keras.saving.load_model(sys.argv[1])(images).numpy()
else:
    import tensorflow as tf
    serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
    predictions = next(iter(serve(tf.constant(images)).values())).numpy()
assert not [name for name in sys.modules if name.startswith("elasticdl")]
np.save(sys.argv[3], predictions)
"""


def test_the_two_lines_of_the_readme(elastic: Elastic) -> None:
    made = elastic.run("zoo", "data", "mnist", "mnist")
    assert made.exit_code == 0, made.output
    flags = ["--model_def=mnist_functional_api.custom_model", "--training_data=mnist/train", "--output=output"]
    outcome = elastic.train(*flags)
    assert outcome.report["audit"]["records"] == outcome.report["plan"]["records"]
    assert (elastic.folder / "output" / "model.keras").exists()
    assert (elastic.folder / "output" / "saved_model" / "saved_model.pb").exists()
    assert "training metrics" in outcome.output, "without validation data the job says what its metrics are of"


def test_missing_data_names_the_command_that_makes_it(elastic: Elastic) -> None:
    outcome = elastic.run("train", "--model_def=mnist_functional_api.custom_model", "--training_data=nowhere/train")
    assert outcome.exit_code == 2
    assert "elasticdl zoo data mnist nowhere" in outcome.output
    assert "Traceback" not in outcome.output


def test_the_exported_model_predicts_without_this_package(elastic: Elastic, digits: Path) -> None:
    import numpy as np

    from elasticdl.zoo.mnist import read_images

    outcome = elastic.train(
        "--model_def=mnist_functional_api.custom_model",
        f"--training_data={digits}/train",
        f"--validation_data={digits}/test",
        "--num_epochs=3",
        "--output=output",
    )
    images, labels = read_images(digits / "test")
    np.save(elastic.folder / "images.npy", images)
    for model in ("model.keras", "saved_model"):
        predictions = elastic.folder / f"{model}.npy"
        command = [sys.executable, "-c", PREDICT, str(elastic.folder / "output" / model)]
        subprocess.run([*command, str(elastic.folder / "images.npy"), str(predictions)], check=True, cwd=elastic.folder)
        accuracy = float(np.mean(np.argmax(np.load(predictions), axis=-1) == labels))
        assert accuracy == pytest.approx(outcome.report["metrics"]["accuracy"], abs=1e-6)


def test_one_worker_with_one_seed_gives_the_same_bits(elastic: Elastic, digits: Path) -> None:
    weights = []
    for number, extra in enumerate(([], [], [f"--validation_data={digits}/test", "--evaluation_steps=7"])):
        output = f"output-{number}"
        elastic.train(
            "--model_def=mnist_functional_api.custom_model",
            f"--training_data={digits}/train",
            f"--output={output}",
            "--num_workers=1",
            "--seed=11",
            *extra,
        )
        weights.append(weights_of(elastic.folder / output / "model.keras"))
    assert weights[0] == weights[1] == weights[2]


def weights_of(model: Path) -> dict[str, bytes]:
    """The bytes of every array in a .keras file, read without Keras."""
    import io
    import zipfile

    import h5py

    found: dict[str, bytes] = {}
    with zipfile.ZipFile(model) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visititems(
            lambda name, item: (
                found.update({name: item[()].tobytes()})
                if isinstance(item, h5py.Dataset) and not name.startswith("optimizer")
                else None
            )
        )
    assert found
    return found


def test_each_worker_imports_the_model_file_once(elastic: Elastic) -> None:
    imports = "import os\nwith open('imports', 'a') as file:\n    file.write(f'{os.getpid()}\\n')\n"
    write_model(elastic.folder, imports + LINEAR)
    write_data(elastic.folder)
    elastic.train("--model_def=model.py", "--training_data=data", "--num_workers=2")
    events = elastic.run("events", elastic.job).output
    started = re.findall(r"PodStarted pod=worker-\d service=worker instance=(\d+)-", events)
    assert len(started) == 2
    assert sorted((elastic.folder / "imports").read_text().split()) == sorted(started)


def test_history_and_report_are_files(elastic: Elastic, digits: Path) -> None:
    outcome = elastic.train(
        "--model_def=mnist_functional_api.custom_model",
        f"--training_data={digits}/train",
        f"--validation_data={digits}/test",
        "--num_epochs=4",
    )
    (history,) = elastic.jobs.glob("*/history.jsonl")
    epochs = [json.loads(line) for line in history.read_text().splitlines()]
    batches = outcome.report["plan"]["batches"] // 4
    assert [(line["epoch"], line["validation_step"]) for line in epochs] == [(n, n * batches) for n in (1, 2, 3, 4)]
    assert all("accuracy" in line["validation"] for line in epochs)
    for service in ("master", "ps-0", "worker-0", "worker-1"):
        assert outcome.report["services"][service]["cpu_s"] > 0
        assert outcome.report["services"][service]["rss_max_bytes"] > 0


def test_the_report_follows_from_the_log_alone(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    outcome = elastic.train("--model_def=model.py", "--training_data=data", "--num_workers=1", "--output=out")
    run = elastic.jobs / elastic.job
    for path in run.iterdir():
        if path.name not in ("job.json", "lock", "nats"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    told = elastic.run("report", run.name)
    assert told.exit_code == 0 and told.output.startswith(f"{run.name}: succeeded\n")
    assert told.output in outcome.output
    assert json.loads(elastic.run("report", run.name, "--json").output) == outcome.report
