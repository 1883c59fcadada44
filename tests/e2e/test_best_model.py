"""The best model: kept, exported, and the reason to end training early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model

RISING = LINEAR.replace("keras.optimizers.SGD(0.05)", "keras.optimizers.SGD(Rising())").replace(
    "def custom_model",
    """class Rising(keras.optimizers.schedules.LearningRateSchedule):
    \"\"\"A rate that is good in the first two epochs, and too high from then on.\"\"\"

    def __call__(self, step):
        return tf.where(tf.cast(step, tf.int32) < 64, 0.05, 1.05)

    def get_config(self):
        return {}


def custom_model""",
)
PREDICT = """
import sys
import numpy as np, keras
rows = np.loadtxt(sys.argv[2], delimiter=",", skiprows=1)
predictions = keras.saving.load_model(sys.argv[1])(rows[:, :3]).numpy()[:, 0]
print(np.mean((rows[:, 3] - predictions) ** 2))
"""


def test_the_best_model_is_exported_and_training_ends_early(elastic: Elastic) -> None:
    write_model(elastic.folder, RISING)
    write_data(elastic.folder, records=2048)
    write_data(elastic.folder, records=200, name="validation/test.csv", seed=4)
    outcome = elastic.train(
        "--model_def=model.py",
        "--training_data=data",
        "--validation_data=validation",
        "--num_epochs=9",
        "--save_best=val_mse",
        "--early_stopping_patience=2",
        "--output=output",
    )
    report = outcome.report
    values = [row["validation"]["mse"] for row in report["history"]["epochs"]]
    best = min(values)
    assert values.index(best) + 3 == len(values) < 9, outcome.output
    assert report["plan"]["epochs"] == len(values)
    assert (report["best"]["value"], report["best"]["exported"]) == (best, True)
    assert "val_mse has not improved in 2 epochs" in outcome.output
    exported = mse_of(elastic.folder / "output" / "model.keras", elastic.folder / "validation" / "test.csv")
    assert abs(exported - best) < 1e-5 * max(1.0, best)
    again = elastic.run("export", outcome.job, "--best", "--output=again")
    assert again.exit_code == 0, again.output
    assert mse_of(elastic.folder / "again" / "model.keras", elastic.folder / "validation" / "test.csv") == exported
    unknown = elastic.run("export", outcome.job, "--step=1")
    assert unknown.exit_code == 2 and "Versions that are kept: step 0, " in unknown.output


def mse_of(model: Path, data: Path) -> float:
    """The error of an exported model, computed by plain Keras."""
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, str(model), str(data)], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def test_a_metric_that_does_not_exist_is_refused(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=200)
    outcome = elastic.run(
        "train",
        "--model_def=model.py",
        "--training_data=data",
        "--validation_data=data",
        "--save_best=val_accuracy",
        "--num_workers=1",
    )
    assert outcome.exit_code == 1
    assert "has no metric val_accuracy" in outcome.output
    assert "val_loss, val_mse" in outcome.output
