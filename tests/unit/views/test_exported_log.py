"""An exported log is the log, without secrets; damaged and foreign files are refused."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.unit.cli.job_log import SPEC, half_done
from tests.unit.views.recorded import LOGS, Recorded, header_of, job_of, recorded

from elasticdl.shared.errors import FormatError, UserError
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.shared.messages.events import Envelope, JobSubmitted, LogRecord
from elasticdl.views.files.anonymous import LEFT_OUT, Anonymizer
from elasticdl.views.files.exported_log import HIDDEN, ExportedJob, ExportedLog, Header, export, without_secrets
from elasticdl.views.reading import exact, verify


def unchanged(envelope: Envelope) -> Envelope:
    return envelope


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_a_file_holds_the_records_and_folds_to_the_same_state(name: str, tmp_path: Path) -> None:
    records, path = recorded(name), tmp_path / "job.edl"
    header = await export(Recorded(records), path, header_of(records), unchanged)
    log = ExportedLog(path)
    assert (log.header, header.records) == (header, len(records))
    assert list(log.records()) == records
    assert [record.seq for record in log.records(after=5)] == list(range(6, len(records) + 1))
    read = await exact(ExportedJob(log))
    assert read.state.is_final
    assert read.read_seq == len(records)


async def test_the_same_log_gives_the_same_bytes(tmp_path: Path) -> None:
    records, files = recorded("plain"), [tmp_path / "one", tmp_path / "two"]
    for path in files:
        await export(Recorded(records), path, header_of(records), unchanged)
    assert files[0].read_bytes() == files[1].read_bytes()


async def test_a_file_can_be_read_with_the_schema_in_it(tmp_path: Path) -> None:
    records, path = recorded("plain"), tmp_path / "job.edl"
    await export(Recorded(records), path, header_of(records), unchanged)
    with gzip.open(path) as file:
        header = json.loads(file.readline())
        length = int.from_bytes(file.read(header["record"]["length_bytes"]), "little")
        data = file.read(length)
    assert (header["format"], header["version"]) == ("elasticdl events", 1)
    pool = descriptor_pool.DescriptorPool()
    schema = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(header["record"]["schema"]))
    pool.Add(schema)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(header["record"]["type"]))
    assert "job_submitted" in str(kind.FromString(data)) or "model.py" in str(kind.FromString(data))


def test_secrets_are_left_out() -> None:
    reader = ReaderSpec(
        function="reader", origin="mysql://me:secret@host/t", params=MappingProxyType({"password": "secret"}),
        records_per_task=1,
    )  # fmt: skip
    spec = replace(SPEC, data=replace(SPEC.data, reader=reader), validation_data=replace(SPEC.data, reader=reader))
    spec = replace(spec, envs={"KEY": "secret"}, storage="s3://me:secret@bucket/x", output="s3://bucket/y")
    envelope = replace(half_done().records[0].envelope, event=JobSubmitted(spec=spec))
    plain = without_secrets(envelope).event
    assert isinstance(plain, JobSubmitted)
    assert "secret" not in str(plain)
    assert plain.spec.envs == {"KEY": HIDDEN}
    assert (plain.spec.storage, plain.spec.output) == ("s3://bucket/x", "s3://bucket/y")


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_an_anonymous_log_has_no_names_and_the_same_decisions(name: str) -> None:
    records = recorded(name)
    anonymizer = Anonymizer(job_of(records))
    changed = [LogRecord(seq=each.seq, envelope=anonymizer.envelope(each.envelope)) for each in records]
    verified = await verify(Recorded(changed).read(0))
    assert verified.decisions >= 5
    assert not verified.differences
    text = str(changed)
    assert [word for word in ("model.py", "data.csv", "/job/", job_of(records), "feature") if word in text] == []


def test_text_of_user_code_is_left_out() -> None:
    anonymizer = Anonymizer(SPEC.job)
    events = [anonymizer.envelope(record.envelope).event for record in half_done().records]
    tails = [getattr(event, "log_tail", "") or getattr(event, "traceback", "") for event in events]
    assert {tail for tail in tails if tail} <= {LEFT_OUT}


def test_names_in_sentences_are_replaced_as_in_paths() -> None:
    anonymizer = Anonymizer(SPEC.job)
    path = anonymizer.path("file:///data/people.csv")
    assert path.startswith("file:///") and path.endswith(".csv") and "people" not in path
    assert anonymizer.text("read file:///data/people.csv again") == f"read {path} again"
    assert anonymizer.path("ps-0/snapshots/7/manifest") == "ps-0/snapshots/7/manifest"


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    records, path = recorded("plain"), tmp_path / "job.edl"
    await export(Recorded(records), path, header_of(records), unchanged)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="is damaged"):
        list(ExportedLog(path).records())
    with gzip.open(path, "wb") as file:
        file.write(replace(header_of(records), records=3).to_line())
    with pytest.raises(UserError, match="its end is missing"):
        list(ExportedLog(path).records())


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("content", ["", "text", '{"format": "other"}\n'])
def test_another_file_is_refused(content: str, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content.encode()) if compressed else content.encode())
    with pytest.raises(UserError, match="is not an exported event log"):
        ExportedLog(path)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path, line = tmp_path / "file", Header(job=SPEC.job, records=0, state="succeeded").to_line()
    path.write_bytes(gzip.compress(line.replace(b'"version": 1', b'"version": 9')))
    with pytest.raises(FormatError, match="version 9"):
        ExportedLog(path)
    with pytest.raises(UserError, match="No such file"):
        ExportedLog(tmp_path / "missing")
