"""A job as a trace in Perfetto's own format, protobuf: the events of ``trace``, written while they are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.proto import perfetto_pb2 as proto
from elasticdl.views.outputs.trace import TOO_LARGE, Trace, thread_name

BYTES_MAX = 256 << 20
"""Most bytes of a trace: Perfetto's page took 385 MB of memory for one of 22 MB, and a browser gives it 4 GB."""
_SEQUENCE = 1
"""Who wrote an event, of which Perfetto wants to know: all have one writer."""
_THREADS_MAX = 1 << 16
"""Tracks of a process. Perfetto's numbers of threads are different in all processes."""


class PerfettoTrace:
    """Encodes a log, record by record.

    Raises:
        UserError: the trace is too large.
    """

    def __init__(self) -> None:
        self._trace = Trace()
        self._tracks: set[int] = set()
        self._bytes = 0

    def pieces(self, records: Iterable[LogRecord]) -> Iterator[bytes]:
        """The bytes of the file, piece by piece."""
        for record in records:
            self._trace.take(record)
            yield self._encoded(self._trace.taken())
        yield self._encoded(self._trace.rest())

    def _encoded(self, events: Iterable[Mapping[str, Any]]) -> bytes:
        packets = [packet for event in events for packet in self._packets(event)]
        data: bytes = proto.Trace(packet=packets).SerializeToString()
        self._bytes += len(data)
        if self._bytes > BYTES_MAX:
            raise UserError(
                f"the trace has more than {BYTES_MAX >> 20} MiB, {TOO_LARGE}",
                hint="Choose a part of the log with --since and --until.",
            )
        return data

    def _packets(self, event: Mapping[str, Any]) -> Iterator[proto.TracePacket]:
        """An event. Perfetto sorts by time; what happened at the same time keeps its order."""
        track, start_ns = event["pid"] * _THREADS_MAX + event.get("tid", 0), 1000 * event["ts"]
        if track not in self._tracks:
            yield from self._descriptors(event["pid"], track, event)
        match event["ph"]:
            case "X":
                yield _packet(start_ns, _named(proto.TYPE_SLICE_BEGIN, track, event))
                end_ns = start_ns + 1000 * event["dur"]
                yield _packet(end_ns, proto.TrackEvent(type=proto.TYPE_SLICE_END, track_uuid=track))
            case "i":
                yield _packet(start_ns, _named(proto.TYPE_INSTANT, track, event))
            case "C":
                (value,) = event["args"].values()
                counted = proto.TrackEvent(type=proto.TYPE_COUNTER, track_uuid=track, counter_value=value)
                yield _packet(start_ns, counted)

    def _descriptors(self, pid: int, track: int, event: Mapping[str, Any]) -> Iterator[proto.TracePacket]:
        """Of a track, before its first event: a thread of a process, or a counter that has no thread."""
        if pid not in self._tracks:
            process = proto.Process(pid=pid, process_name=self._trace.names()[pid])
            yield proto.TracePacket(track_descriptor=proto.TrackDescriptor(uuid=pid, process=process))
        found = proto.TrackDescriptor(uuid=track, parent_uuid=pid)
        if "tid" in event:
            found.thread.MergeFrom(proto.Thread(pid=pid, tid=track, thread_name=thread_name(event["tid"])))
        else:
            found.name = event["name"]
            found.counter.SetInParent()
        yield proto.TracePacket(track_descriptor=found)
        self._tracks |= {pid, track}


def _packet(time_ns: int, event: proto.TrackEvent) -> proto.TracePacket:
    return proto.TracePacket(timestamp=time_ns, trusted_packet_sequence_id=_SEQUENCE, track_event=event)


def _named(kind: proto.Type.ValueType, track: int, event: Mapping[str, Any]) -> proto.TrackEvent:
    annotations = [_annotation(name, value) for name, value in event["args"].items()]
    return proto.TrackEvent(type=kind, track_uuid=track, name=event["name"], debug_annotations=annotations)


def _annotation(name: str, value: object) -> proto.Annotation:
    match value:
        case int():
            return proto.Annotation(name=name, int_value=value)
        case float():
            return proto.Annotation(name=name, double_value=value)
        case _:
            return proto.Annotation(name=name, string_value=str(value))
