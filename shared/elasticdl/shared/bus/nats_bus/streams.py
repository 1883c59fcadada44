"""The streams of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import STREAM_NAME_IN_USE, STREAM_NOT_FOUND, Connection, RefusedError
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.names import JobId

NANOSECONDS = 1_000_000_000


def stream_configs(job: JobId, settings: BusSettings) -> list[dict[str, Any]]:
    """Configuration of the streams, as JetStream's API takes it."""
    every: Mapping[str, Any] = {
        "storage": "file",
        "num_replicas": settings.replicas,
        "max_age": 0,
        "duplicate_window": int(settings.dedupe_window_s * NANOSECONDS),
    }
    return [
        {
            **every,
            "name": subjects.tasks_stream(job),
            "subjects": subjects.task_patterns(job),
            "retention": "workqueue",
            "discard": "new",
        },
        {
            **every,
            "name": subjects.events_stream(job),
            "subjects": subjects.event_patterns(job),
            "retention": "limits",
            "discard": "new",
            "max_bytes": settings.events_bytes_max,
            "deny_delete": True,
            "deny_purge": True,
        },
        {
            **every,
            "name": subjects.payloads_stream(job),
            "subjects": subjects.payload_patterns(job),
            "retention": "limits",
            "discard": "new",
            "deny_delete": True,
            "deny_purge": True,
        },
        {
            **every,
            "name": subjects.states_stream(job),
            "subjects": subjects.states_patterns(job),
            "retention": "limits",
            "discard": "new",
        },
        {
            **every,
            "name": subjects.model_stream(job),
            "subjects": subjects.register_patterns(job),
            "retention": "limits",
            "discard": "old",
            "max_msgs_per_subject": 1,
        },
        {
            **every,
            "name": subjects.core_stream(job),
            "subjects": subjects.core_patterns(job),
            "retention": "limits",
            "discard": "old",
            "max_msgs_per_subject": 1,
        },
    ]


async def remove_streams(connection: Connection, job: JobId) -> None:
    """Remove all streams of a job, the event log last, so that a removal that was interrupted can be repeated."""
    names = {config["name"] for config in stream_configs(job, connection.settings)}
    log = subjects.events_stream(job)
    for name in (*sorted(names - {log}), log):
        try:
            await connection.api(f"STREAM.DELETE.{name}", {})
        except RefusedError as error:
            if error.error_code != STREAM_NOT_FOUND:
                raise


async def create_streams(connection: Connection) -> None:
    """Create those that are missing; existing ones stay as they are."""
    for config in stream_configs(connection.job, connection.settings):
        name = config["name"]
        try:
            await connection.api(f"STREAM.INFO.{name}", {})
            continue
        except RefusedError as error:
            if error.error_code != STREAM_NOT_FOUND:
                raise
        try:
            await connection.api(f"STREAM.CREATE.{name}", config)
        except RefusedError as error:
            if error.error_code != STREAM_NAME_IN_USE:  # another process has just created it
                raise
