"""The CustomResourceDefinition of TrainingJob follows the rules of structural schemas, and its file is up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.shared.job.kind_options import COMMAND_FLAGS
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.options import flags_of
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
from elasticdl.shared.kubernetes.training_job.definition import definition, definition_text, object_schema
from elasticdl.shared.kubernetes.training_job.job_schema import NO_JOB_OPTIONS, REQUIRED, job_schema
from elasticdl.shared.kubernetes.training_job.schema import spec_schema
from elasticdl.shared.kubernetes.training_job.spec import completed

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "deploy" / "kustomize" / "controller" / "crd.yaml"


def nodes(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, schema) of every field, and of what lists and maps consist of."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from nodes(schema[part], f"{path}[]")


NODES = dict(nodes(object_schema()))


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text() == definition_text(), "Run: make crd"
    assert yaml.safe_load(FILE.read_text()) == definition()


def test_every_field_has_a_description() -> None:
    named = {path: schema for path, schema in NODES.items() if path and not path.endswith("[]") and path != ".metadata"}
    assert len(named) > 100
    assert [path for path, schema in named.items() if len(schema.get("description", "")) < 5] == []
    assert [path for path, schema in named.items() if "--" in schema["description"]] == []


def test_every_value_has_a_type_and_a_limit() -> None:
    """The API server estimates the cost of a rule by the limits of what it reads."""
    for path, schema in NODES.items():
        limits = {"string": ("maxLength", "enum", "format"), "array": ("maxItems",)}.get(schema.get("type", ""), ())
        is_described = path in ("", ".apiVersion", ".kind", ".metadata")
        assert is_described or not limits or any(limit in schema for limit in limits), path
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert not ("properties" in schema and "additionalProperties" in schema), path


def test_defaults_are_valid_and_not_of_required_fields() -> None:
    with_default = {path: schema for path, schema in NODES.items() if "default" in schema}
    assert {".spec.kind", ".spec.worker", ".spec.worker.min", ".spec.suspend"} <= with_default.keys()
    for path, schema in with_default.items():
        completed(schema, schema["default"], path)
    for path, schema in NODES.items():
        assert [name for name in schema.get("required", ()) if "default" in schema["properties"][name]] == [], path


@pytest.mark.parametrize("kind", JobKind)
def test_every_option_of_a_job_is_a_field(kind: JobKind) -> None:
    options = flags_of(COMMAND_FLAGS[kind])
    assert [name for name in options if name not in job_schema()["properties"]] == [
        name for name in options if name in NO_JOB_OPTIONS
    ]
    assert {"model_def"} < set(REQUIRED[kind]) <= set(job_schema()["properties"])


def test_the_paths_of_columns_and_scale_are_fields() -> None:
    (version,) = definition()["spec"]["versions"]
    scale = version["subresources"]["scale"]
    columns = [each["jsonPath"] for each in version["additionalPrinterColumns"]]
    paths = [*scale.values(), *(path for path in columns if not path.startswith(".metadata"))]
    assert len(paths) == 9
    assert [path for path in paths if path not in NODES] == []


def test_the_examples_can_be_read() -> None:
    """That of the guide, and the file."""
    guide = (ROOT / "docs" / "trainingjob.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    for text in (guide, (ROOT / "deploy" / "examples" / "trainingjob.yaml").read_text()):
        spec = TrainingJobSpec.from_manifest(yaml.safe_load(text))
        assert (spec.name, spec.worker.max, spec.ps.max) == ("clicks", 6, 2)


def test_the_schema_of_one_call_is_not_that_of_another() -> None:
    first = spec_schema()
    first["properties"].clear()
    assert spec_schema()["properties"]
