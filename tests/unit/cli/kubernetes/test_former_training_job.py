"""TrainingJobs of PaddlePaddle EDL as those of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.cli.kubernetes.former_training_job import converted, converted_text
from elasticdl.shared.errors import UserError

EXAMPLE = """\
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata:
  name: example
spec:
  image: "edl-tutorial"
  port: 7164
  ports_num: 1
  ports_num_for_sparse: 1
  fault_tolerant: true
  trainer:
    entrypoint: "python /workspace/train_ft.py"
    workspace: "/workspace"
    passes: 50
    min-instance: 2
    max-instance: 6
    resources:
      limits:
        alpha.kubernetes.io/nvidia-gpu: 1
        cpu: "200m"
        memory: "200Mi"
      requests:
        cpu: "200m"
        memory: "200Mi"
  pserver:
    min-instance: 2
    max-instance: 2
    resources:
      limits:
        cpu: "800m"
        memory: "1Gi"
      requests:
        cpu: "500m"
        memory: "600Mi"
"""
"""The fields of EDL's example/examplejob.yaml, with the GPU that is commented out there."""


def test_the_example_of_edl(tmp_path: Path) -> None:
    file = tmp_path / "examplejob.yaml"
    file.write_text(EXAMPLE)
    text = converted_text(file)
    assert yaml.safe_load(text) == {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "example"},
        "spec": {
            "image": "edl-tutorial",
            "job": {
                "model_def": "/workspace/train_ft.py",
                "training_data": "s3://BUCKET/PREFIX",
                "num_epochs": 50,
            },
            "worker": {
                "min": 2,
                "max": 6,
                "resources": {
                    "limits": {"nvidia.com/gpu": 1, "cpu": "200m", "memory": "200Mi"},
                    "requests": {"cpu": "200m", "memory": "200Mi"},
                },
            },
            "ps": {
                "min": 2,
                "max": 2,
                "resources": {
                    "limits": {"cpu": "800m", "memory": "1Gi"},
                    "requests": {"cpu": "500m", "memory": "600Mi"},
                },
            },
        },
    }
    comments = [line for line in text.splitlines() if line.startswith("#")]
    for name in (
        *("trainer.entrypoint (python", "job.training_data", "port (7164)", "ports_num (1)"),
        *("ports_num_for_sparse (1)", "fault_tolerant (true)", "trainer.workspace (/workspace)"),
    ):
        assert sum(line.startswith(f"# spec.{name}") for line in comments) == 1, name
    assert len(comments) == 7


def former(**spec: Any) -> dict[str, Any]:
    base = {"trainer": {"entrypoint": "python train.py", "min-instance": 0, "max-instance": 3}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "job", "uid": "1"},
        "spec": base | spec,
        "status": {"phase": "running"},
    }


def test_fields_of_later_versions() -> None:
    manifest, notes = converted(
        former(
            passes=3,
            imagePullSecrets={"name": "registry"},
            host_network=True,
            master={"etcd-endpoint": "http://etcd", "resources": {"requests": {"cpu": "1"}}},
            pserver={"min-instance": 1, "max-instance": 1, "replicaSpec": {"spec": {}}},
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "clicks"}},
                {"name": "disk", "hostPath": {"path": "/mnt"}},
                {"name": "cache", "emptyDir": {}},
            ],
            VolumeMounts=[
                {"name": "data", "mountPath": "/data", "readOnly": True},
                {"name": "disk", "mountPath": "/disk"},
                {"name": "cache", "mountPath": "/cache"},
            ],
        )
    )
    spec = manifest["spec"]
    assert manifest["metadata"] == {"name": "job"}
    assert spec["job"]["num_epochs"] == 3
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["master"] == {"resources": {"requests": {"cpu": "1"}}}
    assert spec["worker"] == {"min": 1, "max": 3}
    assert spec["volumes"] == [
        {"claimName": "clicks", "mountPath": "/data", "readOnly": True},
        {"hostPath": "/mnt", "mountPath": "/disk"},
    ]
    for text in (
        "spec.host_network (true)",
        "spec.master.etcd-endpoint",
        "spec.pserver.replicaSpec",
        "(cache)",
        "status",
    ):
        assert sum(text in note for note in notes) == 1, text


def test_another_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no TrainingJob of paddlepaddle\.org/v1, but Job of batch/v1"):
        converted({"apiVersion": "batch/v1", "kind": "Job"})
    with pytest.raises(UserError, match=r"spec\.worker\.max is 1, below spec\.worker\.min"):
        converted(former(trainer={"entrypoint": "", "min-instance": 2, "max-instance": 1}))
    file = tmp_path / "job.yaml"
    for content, message in (("a: [b", "is not YAML"), ("", "has no objects"), ("- a", "has no objects")):
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            converted_text(file)
    with pytest.raises(UserError, match="can't be read"):
        converted_text(tmp_path / "absent.yaml")
