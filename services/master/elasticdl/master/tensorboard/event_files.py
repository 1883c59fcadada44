"""TensorBoard event files: one per run, whose bytes follow from the points alone.

So writing a job again changes nothing, and a longer log only appends to the file. A TensorBoard that has the file open
continues to read it. A file that a killed process left incomplete is completed.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.proto import tensorboard_pb2 as proto
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore, join, scheme_of
from elasticdl.shared.storage.file_store import translate
from elasticdl.shared.storage.tfrecord_frame import frame
from elasticdl.shared.storage.uris import local_path
from elasticdl.views.curves import Point, Run

_FILE_VERSION = "brain.Event:2"


def write(store: ObjectStore, folder: str, name: str, points: Sequence[Point], started_s: float) -> int:
    """Bring the event files of a job up to date.

    Args:
        name: ends the files' names, so that those of several jobs in one folder differ.
        started_s: when the job was submitted, seconds since 1970.

    Returns:
        How many files have changed.
    """
    changed = 0
    for run in Run:
        of_run = [point for point in points if point.run is run]
        if of_run:
            uri = join(folder, run.value, f"events.out.tfevents.{int(started_s)}.{name}")
            changed += _update(store, uri, encode(of_run, started_s))
    return changed


def encode(points: Sequence[Point], started_s: float) -> bytes:
    """The content of an event file; ``started_s``: time of the file's header, seconds since 1970."""
    header = proto.Event(wall_time=started_s, file_version=_FILE_VERSION)
    events = [header, *(_event(point) for point in points)]
    return b"".join(frame(event.SerializeToString(deterministic=True)) for event in events)


def _event(point: Point) -> proto.Event:
    tensor = proto.Tensor(dtype=proto.DT_FLOAT, tensor_shape=proto.Shape(), float_val=[point.value])
    metadata = proto.Metadata(plugin_data=proto.PluginData(plugin_name="scalars"))
    value = proto.Value(tag=point.tag, tensor=tensor, metadata=metadata)
    return proto.Event(wall_time=point.time_s, step=point.step, summary=proto.Summary(value=[value]))


def _update(store: ObjectStore, uri: str, content: bytes) -> bool:
    """Write what a file lacks; returns whether it lacked anything."""
    try:
        present = store.read(uri)
    except ObjectNotFoundError:
        present = b""
    if present == content:
        return False
    if present and content.startswith(present) and scheme_of(uri) == "file":
        try:
            with local_path(uri).open("r+b") as file:
                # Not to the end of the file: another process may have appended the same bytes since.
                file.seek(len(present))
                file.write(content[len(present) :])
        except OSError as error:
            raise translate(error, uri) from error
    else:
        store.write(uri, content)
    return True
