"""``elasticdl export`` of a job on Kubernetes: a pod in the image of its workers writes the model."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs.export_settings import ExportSettings
from elasticdl.cli.kubernetes.ended_jobs.one_time_run import run_once
from elasticdl.cli.kubernetes.ended_jobs.resume import check_ended
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.manifests.job_objects import beside_job
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.cli.kubernetes.submit import connect, former_run, report_error, say
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.names import JOB_FOLDER, SUBMISSION_FILE
from elasticdl.shared.process.exit_codes import exit_code
from elasticdl.shared.process.settings import variable

MODULE = "elasticdl.cli.kubernetes.ended_jobs.export"
_PURPOSE = "export"


def export(job: KubernetesJobHandle, settings: ExportSettings) -> None:
    """Run the command."""
    settings.check()
    if settings.output and "://" not in settings.output:
        raise UserError(
            f"--output={settings.output} would be a folder of a pod", hint="Give s3://BUCKET/PREFIX.", usage=True
        )
    check_ended(job, "exported")
    arguments = ["-P", "-m", MODULE, json.dumps(asdict(settings))]
    manifest = beside_job(job.job_object(), _PURPOSE, secrets.token_hex(3), arguments)
    console = JobConsole()
    console.print_line(f"Exporting the model of job {job.job} in a pod of namespace {job.api.namespace}.")
    run_once(job.api, manifest, console.print_line)


async def _export(file: SubmissionFile, settings: ExportSettings) -> None:
    from elasticdl.cli.commands.export import write_model
    from elasticdl.cli.jobs.ended_job import read_from
    from elasticdl.cli.jobs.run_directory import RunDirectory

    async with await connect(os.environ[variable("nats_url")], file.job) as bus:
        past = await read_from(bus, former_run(file))
    with tempfile.TemporaryDirectory(prefix="elasticdl-export-") as folder:
        run = RunDirectory(Path(folder), file.job)
        run.create()
        await asyncio.to_thread(write_model, past, run, settings, say, logs_stay=False)


def main() -> int:
    """Entry point of the pod; its argument is an ``ExportSettings`` as JSON."""
    try:
        settings = ExportSettings(**json.loads(sys.argv[1]))
        file = SubmissionFile.from_json(Path(JOB_FOLDER, SUBMISSION_FILE).read_text())
        asyncio.run(_export(file, settings))
    except Exception as error:  # The outermost frame.
        report_error(error)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
