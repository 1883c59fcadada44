"""What a TrainingJob asks for, and how a wrong one is refused."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import PredictFlags, TrainFlags
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec


def training_job(**spec: Any) -> Manifest:
    """A TrainingJob that trains, with these fields of its ``spec``."""
    job = {"model_def": "model.py", "training_data": "s3://bucket/train"}
    return {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "clicks", "namespace": "team", "uid": "1-2-3"},
        "spec": {"job": job, **spec},
    }


def changed(manifest: Manifest, path: str, value: Any) -> Manifest:
    """A copy of an object with another value of one field."""
    copy = deepcopy(manifest)
    *sections, name = path.split(".")
    fields = copy
    for section in sections:
        fields = fields.setdefault(section, {})
    fields[name] = value
    return copy


def test_what_is_not_given_has_the_defaults_of_the_command_line() -> None:
    spec = TrainingJobSpec.from_manifest(training_job())
    assert (spec.name, spec.namespace, spec.uid, spec.kind) == ("clicks", "team", "1-2-3", JobKind.TRAIN)
    flags = TrainFlags(
        model_def="model.py",
        training_data="s3://bucket/train",
        platform="kubernetes",
        job_name="clicks",
        num_ps_pods=1,
    )
    assert spec.flags == flags
    assert spec.pods == KubernetesFlags(namespace="team")
    assert (spec.worker.min, spec.worker.max, spec.worker.replicas) == (1, 2, None)
    assert (spec.ps.min, spec.ps.max, spec.ps.replicas) == (1, 1, None)
    assert not spec.suspend
    assert spec.patches == {}


def test_a_job_with_a_ring_has_no_ps() -> None:
    job = {**training_job()["spec"]["job"], "distribution_strategy": "AllreduceStrategy"}
    spec = TrainingJobSpec.from_manifest(training_job(job=job, worker={"min": 2, "max": 4}))
    assert (spec.ps.min, spec.ps.max) == (0, 0)
    flags = spec.flags_for(3, 0)
    flags.check()
    assert isinstance(flags, TrainFlags)
    assert (flags.num_workers, flags.grads_to_wait, flags.processes) == (3, 4, 3)
    with pytest.raises(UserError, match=r"spec.ps.max is 2, and a TrainingJob with .*AllreduceStrategy has no"):
        TrainingJobSpec.from_manifest(training_job(job=job, ps={"max": 2}))


def test_fields_become_options() -> None:
    manifest = training_job(
        image="models:1",
        worker={"min": 2, "max": 6, "resources": {"requests": {"cpu": 4, "nvidia.com/gpu": 1}}},
        ps={"min": 2, "max": 4, "image": "ps:1", "priorityClassName": "own"},
        volumes=[{"claimName": "clicks", "mountPath": "/data", "readOnly": True}],
        nodeSelector={"disk": "fast"},
        runAsUser=1000,
        priorityClassName="offline",
        model={"files": {"model.py": "x = 1\n"}},
        activeDeadlineSeconds=60,
    )
    spec = TrainingJobSpec.from_manifest(changed(manifest, "spec.job.use_async", False))
    assert spec.flags.num_workers == 6
    assert spec.flags.num_ps_pods == 2
    assert isinstance(spec.flags, TrainFlags)
    assert spec.flags.is_synchronous
    assert spec.pods == KubernetesFlags(
        namespace="team",
        image_name="models:1",
        ps_image="ps:1",
        worker_resource_request="cpu=4,nvidia.com/gpu=1",
        volume="claim_name=clicks,mount_path=/data,read_only=true",
        node_selector="disk=fast",
        run_as_user="1000",
        master_pod_priority="offline",
        worker_pod_priority="offline",
        ps_pod_priority="own",
    )
    assert spec.model_files == {"model.py": "x = 1\n"}
    assert spec.deadline_s == 60


def test_the_options_are_those_of_the_kind_of_job() -> None:
    job = {"model_def": "m.f", "prediction_data": "s3://bucket/new", "output": "s3://bucket/out", "model": "clicks-1"}
    spec = TrainingJobSpec.from_manifest(training_job(kind="predict", job=job))
    assert isinstance(spec.flags, PredictFlags)
    assert spec.flags.minibatch_size == 256


def test_the_placement_of_a_role_is_a_patch_of_its_pods() -> None:
    template = {"spec": {"nodeSelector": {"zone": "a"}, "runtimeClassName": "nvidia"}}
    manifest = training_job(
        worker={"max": 2, "nodeSelector": {"zone": "b", "gpu": "yes"}, "podTemplate": template},
        podTemplate={"metadata": {"labels": {"team": "ads"}}},
    )
    assert TrainingJobSpec.from_manifest(manifest).patches == {
        "all": {"metadata": {"labels": {"team": "ads"}}},
        "worker": {"spec": {"nodeSelector": {"zone": "a", "gpu": "yes"}, "runtimeClassName": "nvidia"}},
    }


def test_an_update_keeps_its_size_where_a_job_starts_with_fewer_workers() -> None:
    synchronous = changed(training_job(worker={"max": 6}), "spec.job.use_async", False)
    flags = TrainingJobSpec.from_manifest(synchronous).flags_for(workers=2, ps=3)
    assert isinstance(flags, TrainFlags)
    assert (flags.num_workers, flags.num_ps_pods, flags.batches_per_update) == (2, 3, 6)
    asynchronous = TrainingJobSpec.from_manifest(training_job(worker={"max": 6})).flags_for(workers=2, ps=3)
    assert isinstance(asynchronous, TrainFlags)
    assert asynchronous.batches_per_update == 1


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kind", "PyTorchJob", "no TrainingJob"),
        ("metadata.name", "Clicks", r"metadata\.name is 'Clicks'"),
        ("spec.worker", {"min": 3, "max": 2}, r"spec\.worker\.max is 2, below spec\.worker\.min"),
        ("spec.worker", {"max": 2, "replicas": 3}, r"spec\.worker\.replicas is 3; it must be 1 to 2"),
        ("spec.worker", {"min": 1}, r"spec\.worker\.max is missing"),
        ("spec.worker", {"maximum": 1}, r"spec\.worker\.maximum is no field"),
        ("spec.ps.max", 257, r"spec\.ps\.max is 257; it must be 1 to 256"),
        ("spec.suspend", "yes", r"spec\.suspend is true or false, not 'yes'"),
        ("spec.suspend", 1, r"spec\.suspend is true or false, not 1"),
        ("spec.job.num_epochs", "3", r"spec\.job\.num_epochs is a whole number"),
        ("spec.job.num_workers", 3, r"spec\.job\.num_workers is no field"),
        ("spec.job.output_format", "csv", r"spec\.job\.output_format is no option of a job of kind train"),
        ("spec.job.training_data", "", r"spec\.job\.training_data is missing"),
        ("spec.job.lr_scaling", "sqrt", r"spec\.job: lr_scaling=sqrt changes nothing"),
        ("spec.kind", "evaluate", r"spec\.job\.training_data is no option of a job of kind evaluate"),
        ("spec.kind", "guess", r"spec\.kind is one of train, evaluate, predict"),
        ("spec.volumes", [{"claimName": "a", "mountPath": "data"}], r"spec\.volumes\[0\]\.mountPath is 'data'"),
        ("spec.volumes", [{"claimName": "a,b", "mountPath": "/a"}], r"spec\.volumes\[0\]\.claimName is 'a,b'"),
        ("spec.master.resources.requests.cpu", "a lot", r"spec\.master\.resources\.requests\.cpu is 'a lot'"),
        ("spec.master.resources.requests.cpu", 0.5, r"spec\.master\.resources\.requests\.cpu is a text or a whole"),
        ("spec.model.files", {"model.py": "", "../a.py": ""}, r"spec\.model\.files: '\.\./a\.py'"),
        ("spec.model.files", {"other.py": ""}, r"spec\.job\.model_def is 'model\.py', which is none of"),
        ("spec.model.files", {"model.py": "#" * 500_000, "b.py": "#" * 500_000}, r"files has 1,000,000 bytes"),
    ],
)
def test_a_wrong_object_is_refused_and_the_field_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainingJobSpec.from_manifest(changed(training_job(), path, value))
