"""One process that makes the updates of a synchronous job, and the comparison of its model with the exported one."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FIT = """
import json, sys
import keras, numpy as np, tensorflow as tf
sys.path.insert(0, sys.argv[1])
import model as user
records, rounds = np.array(json.loads(sys.argv[2]), np.float32), json.loads(sys.argv[3])
own, optimizer = user.custom_model(), user.optimizer()
for one in rounds:
    with tf.GradientTape() as tape:
        loss = user.loss(records[one, 3], own(records[one, :3], training=True))
    optimizer.apply(tape.gradient(loss, own.trainable_variables), own.trainable_variables)
trained = keras.saving.load_model(sys.argv[1] + "/output/model.keras")
for mine, theirs in zip(own.get_weights(), trained.get_weights(), strict=True):
    np.testing.assert_allclose(theirs, mine, atol=1e-4)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The updates of a job without shuffling.

    Attributes:
        records: number of records.
        batch: records per minibatch.
        per_task: minibatches per task.
        cohort: tasks that are trained side by side.
        epochs: passes over the records.
    """

    records: int
    batch: int
    per_task: int
    cohort: int
    epochs: int

    def updates(self) -> list[list[int]]:
        """The records of each update."""
        starts = list(range(0, self.records, self.batch * self.per_task))
        found = []
        for first in range(0, len(starts), self.cohort):
            tasks = [
                range(start, min(start + self.batch * self.per_task, self.records))
                for start in starts[first : first + self.cohort]
            ]
            for batch in range(self.per_task):
                part = slice(batch * self.batch, (batch + 1) * self.batch)
                one = [record for task in tasks for record in task[part]]
                found += [one] if one else []
        return found * self.epochs

    def check_model(self, folder: Path, data: Path, more: str = "") -> None:
        """Train in one process, and compare its weights with those of ``output/model.keras``.

        Args:
            folder: holds ``model.py`` and the output of the job.
            data: the records.
            more: Python code with further checks, where ``own`` and ``trained`` are the two models.
        """
        command = [
            sys.executable,
            "-c",
            FIT + more,
            str(folder),
            json.dumps(_records(data)),
            json.dumps(self.updates()),
        ]
        compared = subprocess.run(command, capture_output=True, text=True, check=False)
        assert compared.returncode == 0, compared.stderr[-3000:]


def _records(data: Path) -> list[list[float]]:
    with data.open() as lines:
        return [[float(row[name]) for name in ("a", "b", "c", "y")] for row in csv.DictReader(lines)]
