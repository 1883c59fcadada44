"""Runs one cell of the comparison: ``fit`` with several seeds, one job, or ParameterServerStrategy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality import data
from benchmarks.quality.cases import Case
from benchmarks.quality.results import ASYNC, PSS, RING, SYNC, Cell, Result

ROOT = Path(__file__).parents[2]
ELASTICDL = (sys.executable, "-m", "elasticdl.cli")

RANGES = Path(__file__).with_name("ranges.json")
"""Case -> metric -> least and greatest result of all seeds of ``fit`` that have run."""
DEADLINE_S = 900
"""Seconds after which a run has failed."""
_STRATEGIES = {ASYNC: (), SYNC: ("--use_async=false",), RING: ("--distribution_strategy=AllreduceStrategy",)}
"""Mode -> options of its jobs."""


class RunError(Exception):
    """A run that failed, or a job whose audit is not exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs cells below a folder.

    Attributes:
        folder: for the data of the cases, and for logs of runs that fail.
    """

    folder: Path

    def data_of(self, case: Case) -> Path:
        """Write the case's data if this was not done yet; the folder with ``train`` and ``test``."""
        folder = self.folder / "data" / case.name
        if not (folder / "test").exists():
            if case.columns is None:
                self._run([*ELASTICDL, "zoo", "data", "mnist", str(folder)], f"data of {case.name}")
            else:
                data.write(case.columns(), case.records, folder)
        return folder

    def fit(self, case: Case, seeds: list[int]) -> list[Result]:
        """Train with ``fit``, one seed after the other in one process."""
        command = [sys.executable, "-m", "benchmarks.quality.fit", case.name, str(self.data_of(case)), *map(str, seeds)]
        started_s = time.monotonic()
        lines = self._run(command, f"fit {case.name}").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        wall_s = round((time.monotonic() - started_s) / len(found), 1)
        return [
            Result(
                cell=Cell(case=case.name, mode="fit", workers=0, seed=each["seed"]),
                metrics=each["metrics"],
                train_s=each["train_s"],
                wall_s=wall_s,
            )
            for each in found
        ]

    def strategy(self, case: Case, workers: int, seed: int) -> Result:
        """Train with TensorFlow's ParameterServerStrategy."""
        started_s = time.monotonic()
        script = [sys.executable, "-m", "benchmarks.quality.pss"]
        command = [*script, case.name, str(self.data_of(case)), str(workers), str(seed)]
        facts = json.loads(self._run(command, f"{case.name} pss {workers} seed {seed}").splitlines()[-1])
        return Result(
            cell=Cell(case=case.name, mode=PSS, workers=workers, seed=seed),
            metrics=facts["metrics"],
            train_s=facts["train_s"],
            wall_s=round(time.monotonic() - started_s, 1),
        )

    def job(self, case: Case, mode: str, workers: int, seed: int) -> Result:
        """Train with one job: asynchronous, synchronous, or a ring.

        Raises:
            RunError: the job failed, or did not absorb every batch exactly once.
        """
        name = f"{case.name} {mode} {workers} seed {seed}"
        jobs = self.folder / "jobs" / name.replace(" ", "-")
        shutil.rmtree(jobs, ignore_errors=True)
        jobs.mkdir(parents=True)
        source, report = self.data_of(case), jobs / "report.json"
        size = f"--minibatch_size={case.batch}" if mode == ASYNC else f"--global_batch_size={case.batch}"
        command = [
            *ELASTICDL,
            "train",
            f"--model_def={case.model_file}",
            f"--training_data={source}/train",
            f"--validation_data={source}/test",
            f"--num_epochs={case.epochs}",
            f"--num_minibatches_per_task={case.per_task}",
            f"--num_workers={workers}",
            f"--seed={seed}",
            "--evaluate_every=end",
            size,
            *_STRATEGIES[mode],
            f"--run_dir={jobs}",
            f"--report={report}",
        ]
        started_s = time.monotonic()
        output = self._run(command, name)
        facts: dict[str, Any] = json.loads(report.read_text())
        if facts["state"] != "succeeded" or not facts["audit"]["exact"]:
            raise RunError(f"{name}: the audit is not exact; see {jobs}\n{output}")
        shutil.rmtree(jobs)
        return Result(
            cell=Cell(case=case.name, mode=mode, workers=workers, seed=seed),
            metrics=facts["metrics"],
            train_s=round(facts["train_s"], 1),
            wall_s=round(time.monotonic() - started_s, 1),
        )

    def _run(self, command: list[str], name: str) -> str:
        """What a command prints; its folder is this repository's."""
        log = self.folder / f"{name.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                output, _ = run.communicate(timeout=DEADLINE_S)
                problem = f"exit code {run.returncode}"
            except subprocess.TimeoutExpired:
                run.terminate()  # A job stops its processes.
                output, _ = run.communicate()
                problem = f"no end after {DEADLINE_S} s"
        if run.returncode != 0:
            with log.open("a") as errors:
                errors.write(output)
            raise RunError(f"{name}: {problem}; see {log}")
        log.unlink()
        return output
