"""The resource TrainingJob, on a real API server: what it explains, checks, completes and shows."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml
from tests.cluster import build
from tests.cluster.kwok.control_plane import ControlPlane, control_plane
from tests.cluster.readiness import wait_until
from tests.cluster.sites import REPOSITORY

from elasticdl.cli.kubernetes.new_job.model_files import collect
from elasticdl.cli.kubernetes.new_job.training_job import create_training_job, training_job
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.options import flags_of
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CUSTOM_RESOURCE_DEFINITION, TRAINING_JOB, Manifest
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec

COMMAND_S = 60.0
CRD = REPOSITORY / "deploy" / "kustomize" / "controller" / "crd.yaml"
EXAMPLE = REPOSITORY / "deploy" / "examples" / "trainingjob.yaml"


@dataclass(frozen=True, slots=True)
class Kubectl:
    """``kubectl``, as the administrator."""

    plane: ControlPlane

    def attempt(self, *arguments: str, given: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; ``given``: an object on its standard input."""
        command = ["kubectl", f"--kubeconfig={self.plane.kubeconfig()}", f"--cache-dir={self.plane.folder}", *arguments]
        text = json.dumps(given) if given else ""
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False)

    def run(self, *arguments: str, given: Manifest | None = None) -> str:
        """The output of a command that succeeds."""
        done = self.attempt(*arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, *arguments: str, given: Manifest | None = None) -> str:
        """The messages of a command that is refused."""
        done = self.attempt(*arguments, given=given)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """An API server that has the resource."""
    if not build.is_built():
        pytest.skip("Kubernetes is not compiled yet, which takes minutes. Run: make test-cluster")
    if lacking := [each for each in ("kubectl", "openssl", "setpriv") if not shutil.which(each)]:
        pytest.skip(f"The API server needs {' and '.join(lacking)}.")
    with control_plane(tmp_path_factory.mktemp("plane"), build.binaries() / "node", None) as plane:
        kubectl = Kubectl(plane)
        wait_until(lambda: kubectl.attempt("get", "namespace", "default").returncode == 0, lambda: "no namespace")
        kubectl.run("apply", "--filename", str(CRD))
        kubectl.run("wait", "--for=condition=Established", "crd/trainingjobs.elasticdl.org", "--timeout=50s")
        wait_until(lambda: kubectl.attempt("get", "tj").returncode == 0, lambda: "the resource is not served")
        wait_until(
            lambda: kubectl.attempt("explain", "tj.spec").returncode == 0, lambda: "the resource is not explained"
        )
        yield kubectl


@pytest.fixture(scope="module")
def api(kubectl: Kubectl) -> Iterator[KubernetesApi]:
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(kubectl.plane.kubeconfig()))) as api:
        yield api


def example(name: str, **spec: Any) -> Manifest:
    """The example under another name; ``spec``: other fields, None: without it."""
    manifest: Manifest = yaml.safe_load(EXAMPLE.read_text())
    manifest["metadata"]["name"] = name
    fields = {**manifest["spec"], **spec}
    manifest["spec"] = {field: value for field, value in fields.items() if value is not None}
    return manifest


def job(**options: Any) -> Mapping[str, Any]:
    return {"model_def": "deepfm.custom_model", "training_data": "s3://elasticdl/clicks/train", **options}


def test_the_definition_is_stored_as_it_is(api: KubernetesApi) -> None:
    """The API server drops what it does not know, and adds a condition for what is not structural."""
    stored = api.get(CUSTOM_RESOURCE_DEFINITION, "trainingjobs.elasticdl.org")
    (version,) = stored["spec"]["versions"]
    (own,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    assert version["schema"] == own["schema"]
    assert version["subresources"] == own["subresources"]
    conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("spec.worker.max", "Most workers that the job may have."),
        ("spec.job.num_epochs", flags_of(TrainFlags)["num_epochs"].help),
        ("status.remainingSeconds", "Estimated seconds until the job ends"),
    ],
)
def test_every_field_is_explained(kubectl: Kubectl, field: str, text: str) -> None:
    assert text in " ".join(kubectl.run("explain", f"trainingjob.{field}").split())


def test_the_example_is_accepted_and_completed(kubectl: Kubectl, api: KubernetesApi) -> None:
    kubectl.run("apply", "--filename", str(EXAMPLE))
    stored = api.get(TRAINING_JOB, "clicks")
    spec = stored["spec"]
    assert (spec["kind"], spec["suspend"], spec["managedBy"]) == ("train", False, "elasticdl.org/controller")
    assert spec["master"]["resources"]["requests"] == {"cpu": "0.1", "memory": "1024Mi"}
    assert "replicas" not in spec["worker"]
    given = TrainingJobSpec.from_manifest(yaml.safe_load(EXAMPLE.read_text()))
    read = TrainingJobSpec.from_manifest(stored)
    assert replace(read, namespace="", uid="", pods=given.pods) == given
    assert replace(read.pods, namespace="") == given.pods


def test_defaults_of_the_api_server_are_ours(api: KubernetesApi) -> None:
    manifest = example("least", worker=None, ps=None, priorityClassName=None, job=job())
    stored = api.create(manifest)
    assert stored["spec"]["worker"] == {
        "min": 1,
        "max": 2,
        "resources": {"requests": {"cpu": "1", "memory": "4096Mi"}},
    }
    given = TrainingJobSpec.from_manifest(manifest)
    read = TrainingJobSpec.from_manifest(stored)
    assert replace(read, namespace="", uid="", pods=replace(read.pods, namespace="")) == given


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"worker": {"min": 3, "max": 2}}, "spec.worker.max must be at least spec.worker.min"),
        ({"ps": {"max": 2, "replicas": 3}}, "spec.ps.replicas must be from spec.ps.min to spec.ps.max"),
        ({"worker": {"min": 1}}, "spec.worker.max: Required value"),
        ({"worker": {"max": 1025}}, "should be less than or equal to 1024"),
        ({"workers": {"max": 1}}, 'unknown field "spec.workers"'),
        ({"job": {"training_data": "x"}}, "spec.job.model_def: Required value"),
        ({"job": {"model_def": "m.f"}}, "spec.job.training_data is missing; a job of kind train needs it"),
        ({"job": job(training_data="")}, "spec.job.training_data is missing; a job of kind train needs it"),
        ({"job": job(output_format="csv")}, "spec.job.output_format is no option of a job of kind train"),
        ({"job": job(shuffle="sometimes")}, 'spec.job.shuffle: Unsupported value: "sometimes"'),
        ({"job": job(num_epochs="3")}, 'spec.job.num_epochs: Invalid value: "string"'),
        (
            {"kind": "evaluate", "job": job(model="clicks")},
            "spec.job.validation_data is missing; a job of kind evaluate",
        ),
        (
            {"kind": "evaluate", "job": job(model="clicks", num_epochs=2, validation_data="x")},
            "spec.job.training_data is no option of a job of kind evaluate",
        ),
        (
            {"kind": "predict", "job": job(output="s3://b/o")},
            "spec.job.prediction_data is missing; a job of kind predict",
        ),
        ({"volumes": [{"mountPath": "/data"}]}, "a volume has either claimName or hostPath"),
        ({"master": {"resources": {"requests": {"cpu": "much"}}}}, "spec.master.resources.requests.cpu: Invalid value"),
    ],
)
def test_a_wrong_object_is_refused_with_our_words(kubectl: Kubectl, spec: Mapping[str, Any], message: str) -> None:
    assert message in kubectl.refusal("create", "--filename=-", given=example("wrong", **spec))


def test_a_name_that_no_job_can_have_is_refused(kubectl: Kubectl) -> None:
    for name in ("a.b", "a" * 51):
        assert "the first part of the job's id" in kubectl.refusal("create", "--filename=-", given=example(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "predict"}, "spec.kind can't change"),
        ({"job": {"num_epochs": 4}}, "spec.job can't change"),
        ({"managedBy": "example.org/other"}, "spec.managedBy can't change"),
        ({"model": {"files": {"model.py": ""}}}, "spec.model can't change"),
        ({"worker": {"max": 8}, "suspend": True, "queue": "ads"}, ""),
    ],
)
def test_what_a_job_does_can_not_change(
    kubectl: Kubectl, api: KubernetesApi, change: Mapping[str, Any], message: str
) -> None:
    if not any(each["metadata"]["name"] == "fixed" for each in api.list(TRAINING_JOB).items):
        api.create(example("fixed"))
    patch = ("patch", "tj", "fixed", "--type=merge", f"--patch={json.dumps({'spec': change})}")
    if message:
        assert message in kubectl.refusal(*patch)
    else:
        kubectl.run(*patch)


def test_scale_sets_the_number_of_workers(kubectl: Kubectl, api: KubernetesApi) -> None:
    api.create(example("scaled"))
    kubectl.run("scale", "tj", "scaled", "--replicas=4")
    assert api.get(TRAINING_JOB, "scaled")["spec"]["worker"]["replicas"] == 4
    kubectl.run("scale", "tj", "scaled", "--replicas=2", "--current-replicas=4")
    refusal = kubectl.refusal("scale", "tj", "scaled", "--replicas=7")
    assert "spec.worker.replicas must be from spec.worker.min to spec.worker.max" in refusal
    remove = [{"op": "remove", "path": "/spec/worker/replicas"}]
    kubectl.run("patch", "tj", "scaled", "--type=json", f"--patch={json.dumps(remove)}")
    assert "replicas" not in api.get(TRAINING_JOB, "scaled")["spec"]["worker"]


def test_get_shows_the_status(kubectl: Kubectl, api: KubernetesApi) -> None:
    api.create(example("shown"))
    status = {
        "phase": "Running",
        "workers": 3,
        "workersText": "3 (1-6)",
        "ps": 1,
        "psText": "1 (1-2)",
        "progress": 42,
        "remainingSeconds": 90,
        "metrics": {"loss": "0.12"},
        "goodput": "0.93",
        "reason": "A fourth worker would add nothing.",
        "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    patch = ("patch", "tj", "shown", "--subresource=status", "--type=merge")
    kubectl.run(*patch, f"--patch={json.dumps({'status': status})}")
    headings, row = kubectl.run("get", "tj", "shown").splitlines()
    assert headings.split() == ["NAME", "PHASE", "WORKERS", "PS", "PROGRESS%", "REMAINING(S)", "AGE", "REASON"]
    assert row.split()[:8] == ["shown", "Running", "3", "(1-6)", "1", "(1-2)", "42", "90"]
    assert row.endswith("A fourth worker would add nothing.")
    assert "trainingjob.elasticdl.org/shown" in kubectl.run("get", "all", "--output=name")
    kubectl.run("wait", "tj", "shown", "--for=condition=Running", "--timeout=10s")
    assert "spec.suspend" not in kubectl.run("describe", "tj", "shown")


def test_a_command_line_becomes_an_object_of_the_cluster(api: KubernetesApi) -> None:
    flags = TrainFlags(
        model_def="deepfm.custom_model",
        training_data="s3://b/train",
        platform="kubernetes",
        job_name="own",
        num_workers=5,
    )
    pods = KubernetesFlags(image_name="models:1", volume="claim_name=data,mount_path=/data")
    manifest = training_job(flags, pods, collect(flags.model_def, ""), api.namespace)
    create_training_job(api, manifest, dry_run=True)
    create_training_job(api, manifest)
    read = TrainingJobSpec.from_manifest(api.get(TRAINING_JOB, "own"))
    assert read.flags == replace(flags, model_def="deepfm.py:custom_model", num_ps_pods=1)
    assert read.pods == replace(pods, namespace=api.namespace)
    assert "def custom_model(" in read.model_files["deepfm.py"]
    with pytest.raises(UserError, match="has a TrainingJob own already"):
        create_training_job(api, manifest)
