"""The published schemas are what other languages and tools compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from elasticdl.shared.proto.published import FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_protoc_reads_a_published_schema_as_it_is_meant(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    result, root = tmp_path / "compiled.bin", path.parents[3]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"--descriptor_set_out={result}"]
    subprocess.run([*command, str(path)], check=True)
    (compiled,) = FileDescriptorSet.FromString(result.read_bytes()).file
    for message in compiled.message_type:
        for field in (*message.field, *(field for entry in message.nested_type for field in entry.field)):
            field.ClearField("json_name")
    assert [*compiled.message_type] == [message for schema in FILES[path] for message in schema.file.message_type]
    assert [*compiled.enum_type] == [enum for schema in FILES[path] for enum in schema.file.enum_type]
    assert {compiled.package} == {schema.file.package for schema in FILES[path]}
