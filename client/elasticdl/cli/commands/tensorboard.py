"""``elasticdl tensorboard``: writes TensorBoard event files from a job's event log."""

from __future__ import annotations

import shlex

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import ReadableJob, read_records
from elasticdl.master.tensorboard import event_files
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.events import JobSubmitted
from elasticdl.shared.storage import display, join, open_store, to_uri
from elasticdl.shared.words import count
from elasticdl.views.curves import points


def tensorboard(job: ReadableJob, logdir: str) -> None:
    """Run the command.

    Args:
        logdir: folder or URI; the files are in a folder of it that is named after the job. Empty: ``tensorboard``.
    """
    folder = join(to_uri(logdir or "tensorboard"), job.job)
    records = read_records(job)
    submitted = next((one.envelope for one in records if isinstance(one.envelope.event, JobSubmitted)), None)
    if submitted is None:
        raise UserError(f"the event log of {job.job} holds no job")
    found = list(points(records))
    console = plain_console()
    if not found:
        console.print(f"{job.job} has no results yet, so nothing was written. Try again after its first task.")
        return
    assert isinstance(submitted.event, JobSubmitted)
    # A resume without the log submits the job again, at another time.
    started_s = submitted.event.spec.created_s or submitted.time_s
    changed = event_files.write(open_store(folder), folder, job.job, found, started_s)
    where = display(folder)
    what = count(len(found), "point")
    console.print(f"Wrote {what} to {where}." if changed else f"{where} is up to date ({what}).")
    console.print(f"To see them: tensorboard --logdir={shlex.quote(where)}")
