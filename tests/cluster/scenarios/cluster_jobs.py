"""Jobs of one small model that share a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.timeline import Recorder, Timeline

PS_M, MASTER_M = 80, 20
"""Requests of a job's ps and master, in thousandths of a CPU."""
OVERHEAD_M = PS_M + MASTER_M
START_LIMIT_S, JOB_LIMIT_S, REPORT_LIMIT_S = 240, 900, 60
POLL_S = 5.0
MODEL = "clicks"
"""Module of the model file in the folder of the commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJobs:
    """Starts jobs and waits for their pods."""

    commands: CommandLine
    recorder: Recorder
    data: str
    """URI of the training data."""

    def start(self, name: str, *flags: str, workers: int, worker_m: int, epochs: int) -> float:
        """Submit a job with one ps.

        Args:
            name: of the job.
            flags: more flags of ``elasticdl train``.
            workers: how many it asks for.
            worker_m: thousandths of a CPU that each of them requests.
            epochs: how long it trains.

        Returns:
            When the command was entered, in seconds since the epoch.
        """
        entered_s = time.time()
        self.commands.train(
            name,
            f"--model_def={MODEL}.custom_model",
            "--model_params=ids_per_category=1000;hidden=(64,32)",
            f"--training_data={self.data}",
            *("--minibatch_size=256", "--num_minibatches_per_task=4", f"--num_epochs={epochs}"),
            *(f"--num_workers={workers}", "--num_ps_pods=1"),
            *(f"--worker_resource_request=cpu={worker_m}m,memory=900Mi", "--worker_resource_limit=cpu=2,memory=1500Mi"),
            *(f"--ps_resource_request=cpu={PS_M}m,memory=300Mi", "--ps_resource_limit=cpu=2,memory=1Gi"),
            *(f"--master_resource_request=cpu={MASTER_M}m,memory=200Mi", "--master_resource_limit=cpu=2,memory=1500Mi"),
            *flags,
        )
        return entered_s

    def wait_for_workers(self, name: str, count: int) -> str:
        """Wait until so many workers of a job run; returns the job's id."""
        self.wait_until(
            lambda now: now.running_at(now.job(name), "worker") >= count,
            f"{count} workers of the job {name} run",
        )
        return self.recorder.timeline().job(name)

    def wait_until(self, holds: Callable[[Timeline], bool], what: str) -> None:
        """Wait until a condition on the pods holds; ``what`` names it if it doesn't within ``START_LIMIT_S``."""
        self.recorder.wait_until(holds, START_LIMIT_S, what)

    def wait_for_batches(self, job: str, count: int) -> None:
        """Wait until a job has computed so many batches."""
        self.commands.wait_for_report(
            job,
            START_LIMIT_S,
            lambda report: int(report.get("batches_computed") or 0) >= count,
            f"has not computed {count} batches",
        )

    def wait_for_exact_end(self, job: str) -> dict[str, Any]:
        """Wait until a job has succeeded, with an exact audit; returns its report."""
        # The pods tell it without a command that costs CPU.
        self.recorder.wait_until(
            lambda now: now.has_ended(job, "master"), JOB_LIMIT_S, f"the master of {job} has ended"
        )
        report = self.commands.wait_for_end(job, REPORT_LIMIT_S)
        assert report["state"] == "succeeded", report
        assert report["audit"]["exact"], report
        return report
