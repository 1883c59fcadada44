"""The published schema is what other languages and tools compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from elasticdl.shared.messages import codec
from elasticdl.shared.proto import published


def test_protoc_reads_the_published_schema_as_it_is_meant(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    result, root = tmp_path / "control.bin", published.PATH.parents[3]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"--descriptor_set_out={result}"]
    subprocess.run([*command, str(published.PATH)], check=True)
    (compiled,) = FileDescriptorSet.FromString(result.read_bytes()).file
    for message in compiled.message_type:
        for field in (*message.field, *(field for entry in message.nested_type for field in entry.field)):
            field.ClearField("json_name")
    assert compiled == codec.SCHEMA.file
