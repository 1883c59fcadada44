"""TensorBoard event files: one per run, whose bytes follow from the points alone.

So writing a job again changes nothing, and what a longer log adds is appended to the file. A TensorBoard that has the
file open reads on from where it was.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from elasticdl.cli.tensorboard.scalars import Point, Run
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore, join, scheme_of
from elasticdl.shared.storage.file_store import translate
from elasticdl.shared.storage.uris import local_path

_FILE_VERSION = "brain.Event:2"


def write(store: ObjectStore, folder: str, name: str, points: Sequence[Point], started_s: float) -> int:
    """Bring the event files of a job up to date.

    Args:
        store: holds the folder.
        folder: URI of the log directory.
        name: ends the files' names, so that those of several jobs in one folder differ.
        points: all points of the job.
        started_s: when the job was submitted, seconds since 1970.

    Returns:
        How many files have changed.

    Raises:
        ElasticDLError: a file can't be read or written.
    """
    changed = 0
    for run in Run:
        of_run = [point for point in points if point.run is run]
        if of_run:
            uri = join(folder, run.value, f"events.out.tfevents.{int(started_s)}.{name}")
            changed += _update(store, uri, encode(of_run, started_s))
    return changed


def encode(points: Sequence[Point], started_s: float) -> bytes:
    """The content of an event file.

    Args:
        points: of one run.
        started_s: time of the file's header, seconds since 1970.
    """
    content = io.BytesIO()
    writer = RecordWriter(content)
    writer.write(Event(wall_time=started_s, file_version=_FILE_VERSION).SerializeToString())
    for point in points:
        summary = scalar_pb(point.tag, point.value)
        event = Event(wall_time=point.time_s, step=point.step, summary=summary)
        writer.write(event.SerializeToString(deterministic=True))
    return content.getvalue()


def _update(store: ObjectStore, uri: str, content: bytes) -> bool:
    """Write what a file lacks; returns whether that was anything."""
    try:
        present = store.read(uri)
    except ObjectNotFoundError:
        present = b""
    if present == content:
        return False
    if present and content.startswith(present) and scheme_of(uri) == "file":
        try:
            with local_path(uri).open("ab") as file:
                file.write(content[len(present) :])
        except OSError as error:
            raise translate(error, uri) from error
    else:
        store.write(uri, content)
    return True
