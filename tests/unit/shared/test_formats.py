"""What a newer version wrote is refused, and the message says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.cli.job_log import SPEC

from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.run_directory import JobRecord
from elasticdl.master.core.fold import fold
from elasticdl.shared.errors import FormatError
from elasticdl.shared.exported.layout import ExportedModel
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import LOG_FORMAT, Envelope, JobSubmitted, LogRecord
from elasticdl.shared.model.manifests import FORMAT, Manifest, decode_manifest, encode_manifest
from elasticdl.shared.model.signature import ModelSignature, Optimizer
from elasticdl.shared.names import Incarnation, PodName, Service

URI = "file:///storage/manifest"
SIGNATURE = ModelSignature(dense=(), tables=(), optimizer=Optimizer(name="sgd", learning_rate=0.1), seed=1)


def next_log() -> None:
    submitted = Envelope(
        service=Service.LAUNCHER,
        name=PodName("launcher"),
        incarnation=Incarnation("cafe"),
        number=1,
        time_s=1.0,
        event=JobSubmitted(spec=SPEC, format=LOG_FORMAT + 1),
    )
    fold([LogRecord(seq=1, envelope=codec.decode_envelope(codec.encode_envelope(submitted)))])


def next_manifest() -> None:
    manifest = Manifest(
        job=SPEC.job,
        ps=PodName("ps-0"),
        incarnation=Incarnation("cafe"),
        number=0,
        plan="",
        signature=SIGNATURE.to_json(),
        placement_version=1,
        groups=(),
        chunks=(),
    )
    decode_manifest(encode_manifest(replace(manifest, format=FORMAT + 1)), URI)


def next_job_record() -> None:
    facts = json.loads(JobRecord(job=SPEC.job, created_s=1.0, state="stopped").to_json())
    JobRecord.from_json(json.dumps(facts | {"format": run_directory.FORMAT + 1}))


def next_export() -> None:
    facts = json.loads(ExportedModel(job="j", version="1", signature=SIGNATURE, tables=()).to_json())
    ExportedModel.from_json(json.dumps(facts | {"format": facts["format"] + 1}), URI)


@pytest.mark.parametrize("read_next", [next_log, next_manifest, next_job_record, next_export])
def test_the_next_format_is_refused(read_next: Callable[[], None]) -> None:
    with pytest.raises(FormatError, match=r"has format 2, .* reads format 1\n  Use the version .*, or a newer one"):
        read_next()
