"""From flags to the objects of a job on Kubernetes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.kubernetes.manifests.job_objects import JobManifest, owned
from elasticdl.cli.kubernetes.manifests.templates import LOST_S
from elasticdl.cli.kubernetes.new_job.creation import early_pods
from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
from elasticdl.cli.kubernetes.submission_file import SourceJob, SubmissionFile
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import JobFlags
from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.job.spec import ExportTables
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.templates import PodTemplates, WorkerPriority
from elasticdl.shared.names import Incarnation, JobId

IDENTITY = Identity(run=Incarnation("0123456789ab"), token="secret", created_s=1.0)
DEFAULTS = {
    "image_name": "worker:1",
    "ps_image": "ps:1",
    "storage": "s3://jobs/all",
    "priority_class_high": "elasticdl-high",
    "priority_class_low": "elasticdl-low",
    "priority_class_spare": "elasticdl-spare",
}
TRAIN = TrainFlags(
    model_def="mnist_functional_api.custom_model",
    training_data="s3://data/mnist",
    platform="kubernetes",
    seed=7,
    shuffle=Shuffle.TASKS,
)


def planned(train: TrainFlags = TRAIN, **pods: Any) -> JobManifest:
    return plan_job(train, KubernetesFlags(**pods), DEFAULTS, IDENTITY)


def main_container(template: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = template["spec"]["containers"][0]
    return container


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


def pods_of(manifest: JobManifest) -> dict[str, dict[str, Any]]:
    templates = PodTemplates.from_json(manifest.config_map("team")["data"]["pods.json"])
    return {
        "master": manifest.job("team")["spec"]["template"],
        "worker": templates.worker,
        "ps": templates.ps,
    }


def test_secrets_of_envs_are_in_the_secret_alone() -> None:
    flags = dataclasses.replace(
        TRAIN, envs="A=1,DB_PASSWORD=hunter2,hunter2,WANDB_API_KEY=hunter2,ELASTICDL_TOKEN=other"
    )
    manifest = planned(flags)
    job, config_map, secret = manifest.all("team")
    assert "hunter2" not in json.dumps([job, config_map])
    assert secret["stringData"] == {
        "DB_PASSWORD": "hunter2,hunter2",
        "WANDB_API_KEY": "hunter2",
        "ELASTICDL_TOKEN": "secret",
    }
    pods = pods_of(manifest)
    assert environment(main_container(pods["worker"]))["A"] == "1"
    assert {"secretRef": {"name": manifest.settings.job}} in main_container(pods["worker"])["envFrom"]
    assert SubmissionFile.from_json(config_map["data"]["submission.json"]).flags.envs == "A=1"


def test_a_job_consists_of_a_job_a_config_map_and_a_secret() -> None:
    manifest = planned()
    job, config_map, secret = manifest.all("team")
    name = manifest.settings.job
    assert name.startswith("mnist-functional-api-")
    assert {(each["metadata"]["name"], each["metadata"]["namespace"]) for each in (job, config_map, secret)} == {
        (name, "team")
    }
    assert secret["stringData"] == {"ELASTICDL_TOKEN": "secret"}
    assert owned(secret, {"metadata": {"name": name, "uid": "u"}})["metadata"]["ownerReferences"][0]["uid"] == "u"
    submission = SubmissionFile.from_json(config_map["data"]["submission.json"])
    assert isinstance(submission.flags, TrainFlags)
    assert submission.flags.model_def == "/elasticdl/model/mnist_functional_api.py:custom_model"
    assert (submission.flags.storage, submission.flags.shuffle) == ("s3://jobs/all", Shuffle.TASKS)
    assert (submission.job, submission.run, submission.flags.seed) == (name, IDENTITY.run, 7)


@pytest.mark.parametrize(("command", "data"), [(EvaluateFlags, "validation_data"), (PredictFlags, "prediction_data")])
def test_a_job_with_a_trained_model_names_where_that_is(
    command: type[JobFlags], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {data: "s3://data/mnist", "model_def": TRAIN.model_def, "model": "mnist-0123ab"}
    values |= {"output": "s3://data/out"} if command is PredictFlags else {}
    source = SourceJob(job=JobId("mnist-0123ab"), storage="s3://jobs/all/mnist-0123ab")

    def submitted(**changes: str) -> SubmissionFile:
        flags = command(**(values | changes))
        assert isinstance(flags, EvaluateFlags | PredictFlags)
        manifest = plan_job(flags, KubernetesFlags(), DEFAULTS, IDENTITY, {str(source.job): source}.__getitem__)
        return SubmissionFile.from_json(manifest.submission)

    found = submitted()
    assert type(found.flags) is command and found.source == source
    assert found.job.startswith(f"mnist-functional-api-{'evaluate' if command is EvaluateFlags else 'predict'}-")
    assert submitted(model="s3://data/exported").source is None
    assert submitted(model="/models/in/the/image.keras").source is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist-0123ab").mkdir()
    assert submitted().source == source  # Pods can't read the folder of that name.
    with pytest.raises(UserError, match=r"--model=exported/model\.keras is on this machine"):
        submitted(model="exported/model.keras")
    with pytest.raises(UserError, match=rf"--{data}=here\.csv is on this machine"):
        submitted(**{data: "here.csv"})


def test_a_submission_survives_its_file() -> None:
    one = SubmissionFile(
        job=JobId("a-1"),
        run=Incarnation("r"),
        created_s=2.0,
        flags=dataclasses.replace(TRAIN, platform="local", shuffle=Shuffle.TASKS, export_tables=ExportTables.PARQUET),
        resumption=ResumeChanges(epochs=3),
    )
    assert SubmissionFile.from_json(one.to_json()) == one
    with pytest.raises(UserError, match="not usable by this image"):
        SubmissionFile.from_json(
            json.dumps({"kind": "train", "job": "a", "run": "r", "created_s": 1, "flags": {"later": 1}})
        )


def test_every_container_fulfils_the_restricted_pod_security_standard_and_has_limits() -> None:
    for template in pods_of(planned()).values():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
            assert {"name": "temporary", "mountPath": "/tmp"} in container["volumeMounts"]


def test_images_and_priorities_come_from_flags_then_from_the_namespace() -> None:
    pods = pods_of(planned())
    assert main_container(pods["master"])["image"] == "worker:1"
    assert main_container(pods["ps"])["image"] == "ps:1"
    assert pods["master"]["spec"]["initContainers"][1]["image"] == "worker:1"
    classes = {service: pods[service]["spec"]["priorityClassName"] for service in pods}
    assert classes == {"master": "elasticdl-high", "ps": "elasticdl-high", "worker": "elasticdl-low"}
    own = planned(image_name="mine:2", master_image="m:3", worker_pod_priority="batch")
    assert main_container(pods_of(own)["master"])["image"] == "m:3"
    assert main_container(pods_of(own)["worker"])["image"] == "mine:2"
    assert pods_of(own)["worker"]["spec"]["priorityClassName"] == "batch"


@pytest.mark.parametrize("text", ["high=0.5", "0.5"])
def test_a_share_of_the_workers_has_high_priority(text: str) -> None:
    manifest = planned(worker_pod_priority=text)
    assert manifest.worker_priority == WorkerPriority(high="elasticdl-high", low="elasticdl-low", high_share=0.5)
    assert "priorityClassName" not in manifest.templates.worker["spec"]


def test_spares_have_the_priority_class_of_the_namespace() -> None:
    assert planned(dataclasses.replace(TRAIN, spare_workers=1)).templates.spare_priority == "elasticdl-spare"
    assert planned().templates.spare_priority == ""


def test_a_gpu_is_visible_to_workers_and_hidden_from_the_other_processes() -> None:
    pods = pods_of(planned(worker_resource_request="cpu=2,memory=8Gi,gpu=1"))
    worker, submit = main_container(pods["worker"]), pods["master"]["spec"]["initContainers"][1]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert environment(worker)["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert environment(worker)["ELASTICDL_GPUS"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in environment(worker)
    assert environment(main_container(pods["ps"]))["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environment(submit)["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "nvidia.com/gpu" not in submit["resources"]["limits"]


def test_submit_asks_for_what_the_master_does_and_may_use_what_a_worker_does() -> None:
    pods = pods_of(planned(worker_resource_request="cpu=2,memory=8Gi"))
    submit = pods["master"]["spec"]["initContainers"][1]
    assert submit["resources"] == {
        "requests": {"cpu": "0.1", "memory": "1024Mi"},
        "limits": {"cpu": "2", "memory": "8Gi"},
    }


def test_volumes_environment_and_labels_reach_the_pods() -> None:
    pods = pods_of(
        planned(
            dataclasses.replace(TRAIN, envs="MODE=fast,LIST=a,b", output="/models/x"),
            volume="claim_name=data,mount_path=/data,read_only=true;claim_name=data,mount_path=/models,sub_path=m",
            node_selector="pool=batch",
            image_pull_secrets="one,two",
            image_pull_policy="Never",
        )
    )
    for service, template in pods.items():
        spec, container = template["spec"], main_container(template)
        assert {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}} in spec["volumes"]
        assert {"name": "volume-0", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
        assert {"name": "volume-0", "mountPath": "/models", "subPath": "m"} in container["volumeMounts"]
        assert (spec["nodeSelector"], container["imagePullPolicy"]) == ({"pool": "batch"}, "Never")
        assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
        assert environment(container).get("MODE") == (None if service == "master" else "fast")


def test_patches_of_all_pods_and_of_one_service_are_merged(tmp_path: Path) -> None:
    file = tmp_path / "patches.yaml"
    file.write_text(
        "all:\n  spec:\n    tolerations: [{key: spot, operator: Exists}]\n"
        "worker:\n  metadata: {annotations: {team: a}}\n"
        "  spec:\n    containers: [{name: worker, env: [{name: MODE, value: slow}]}]\n"
    )
    pods = pods_of(planned(dataclasses.replace(TRAIN, envs="MODE=fast,X=1"), cluster_spec=file))
    assert all({"key": "spot", "operator": "Exists"} in each["spec"]["tolerations"] for each in pods.values())
    assert environment(main_container(pods["worker"]))["MODE"] == "slow"
    assert environment(main_container(pods["worker"]))["X"] == "1"
    assert environment(main_container(pods["ps"]))["MODE"] == "fast"
    assert pods["worker"]["metadata"]["annotations"] == {"team": "a"}


def test_the_model_file_and_its_neighbours_travel_in_the_config_map(tmp_path: Path) -> None:
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("SIZE = 1\n")
    (tmp_path / "model.py").write_text(
        "import layers\ndef custom_model(): ...\ndef loss(): ...\ndef optimizer(): ...\ndef feed(): ...\n"
    )
    manifest = planned(dataclasses.replace(TRAIN, model_def=str(tmp_path / "model.py")))
    volume = next(each for each in pods_of(manifest)["worker"]["spec"]["volumes"] if each["name"] == "model")
    items = {each["path"]: each["key"] for each in volume["configMap"]["items"]}
    assert set(items) == {"model.py", "layers/__init__.py"}
    assert manifest.config_map("team")["data"][items["layers/__init__.py"]] == "SIZE = 1\n"


@pytest.mark.parametrize(
    ("train", "pods", "message"),
    [
        ({}, {"worker_resource_request": "cpu=1,ram=1Gi"}, "--worker_resource_request: 'ram=1Gi' is not a resource"),
        ({}, {"ps_resource_request": "cpu=2", "ps_resource_limit": "cpu=1"}, "asks for more cpu"),
        ({}, {"worker_resource_request": "gpu=0.5"}, "gpu=0.5 is not a whole number"),
        ({}, {"worker_resource_request": "gpu=2"}, "asks for 2 GPUs, but a worker computes on one"),
        ({}, {"ps_resource_request": "gpu=1"}, "--ps_resource_request asks for a GPU, but only workers"),
        ({}, {"volume": "claim_name=a"}, "does not say what to mount, or where"),
        ({}, {"worker_pod_priority": "high=2"}, "the share is not between 0 and 1"),
        ({}, {"node_selector": "pool"}, "'pool' is not of the form"),
        ({"output": "models/x"}, {}, "--output=models/x is not in a volume of the pods"),
        ({"tensorboard_log_dir": "curves"}, {}, "--tensorboard_log_dir=curves is not in a volume of the pods"),
        ({"training_data": "data/train"}, {}, "--training_data=data/train is on this machine"),
        ({"initial_model": "exports/x"}, {}, "--initial_model=exports/x is on this machine"),
        ({"initial_model": "other"}, {}, "--initial_model=other names a job, and there is no kubeconfig"),
        ({"data_cache_dir": "/data"}, {}, "--data_cache_dir=/data is not in a volume"),
        ({"data_cache_size": "big"}, {"worker_resource_request": "cpu=1,disk=8Gi"}, "--data_cache_size=big"),
    ],
)
def test_wrong_flags_are_refused(train: dict[str, Any], pods: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        planned(dataclasses.replace(TRAIN, **train), **pods)


@pytest.mark.parametrize(
    ("pods", "train", "size"),
    [
        ({}, {}, "10Gi"),
        ({"worker_resource_request": "cpu=1,disk=8Gi"}, {}, str(4 << 30)),
        ({"worker_resource_request": "cpu=1,disk=8Gi"}, {"data_cache_size": "1Gi"}, str(1 << 30)),
        (
            {"worker_resource_request": "cpu=1,disk=8Gi", "volume": "host_path=/var/cache,mount_path=/cache"},
            {"data_cache_dir": "/cache/data"},
            "10Gi",
        ),
    ],
)
def test_the_data_cache_fits_on_the_disk_of_the_pods(pods: dict[str, Any], train: dict[str, Any], size: str) -> None:
    submission = SubmissionFile.from_json(planned(dataclasses.replace(TRAIN, **train), **pods).submission)
    assert submission.flags.data_cache_size == size


def test_data_that_the_model_file_reads_may_have_any_name(tmp_path: Path) -> None:
    functions = ("custom_model", "loss", "optimizer", "feed", "custom_data_reader")
    (tmp_path / "model.py").write_text("".join(f"def {name}(): ...\n" for name in functions))
    manifest = planned(dataclasses.replace(TRAIN, model_def=str(tmp_path / "model.py"), training_data="orders"))
    assert SubmissionFile.from_json(manifest.submission).flags.training_data == "orders"


def test_the_first_worker_and_the_ps_are_created_as_the_master_would() -> None:
    manifest = planned(worker_pod_priority="high=0.5")
    owner = {"metadata": {"name": manifest.settings.job, "uid": "u-1"}}
    pod, ps = early_pods(manifest, owner)
    assert pod["metadata"]["name"] == f"{manifest.settings.job}-worker-0-0"
    assert ps["metadata"]["name"] == f"{manifest.settings.job}-ps-0-0"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert pod["spec"]["priorityClassName"] == "elasticdl-high"
    variables = {each["name"]: each.get("value") for each in main_container(pod)["env"]}
    assert variables["ELASTICDL_RUN"] == IDENTITY.run
    assert float(variables["ELASTICDL_MASTER_WAIT_S"] or 0) > 0
    ring = planned(dataclasses.replace(TRAIN, distribution_strategy="AllreduceStrategy"))
    assert [each["metadata"]["labels"]["elasticdl.org/pod"] for each in early_pods(ring, owner)] == ["worker-0"]


def test_a_model_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("WORDS = '" + "x" * 900_000 + "'\n")
    (tmp_path / "model.py").write_text(
        "import words\ndef custom_model(): ...\ndef loss(): ...\ndef optimizer(): ...\ndef feed(): ...\n"
    )
    with pytest.raises(UserError, match=r"have 900,\d+ bytes; a job takes 900,000\n.*words.py"):
        planned(dataclasses.replace(TRAIN, model_def=str(tmp_path / "model.py")))


def test_flags_of_kubernetes_are_refused_on_this_machine() -> None:
    with pytest.raises(UserError, match="--volume needs --platform=kubernetes"):
        KubernetesFlags(volume="claim_name=a,mount_path=/a").check("local")
    KubernetesFlags().check("local")


def test_a_master_leaves_a_lost_node_soon() -> None:
    spec = planned().job("team")["spec"]
    assert (spec["podReplacementPolicy"], "podFailurePolicy" in spec) == ("TerminatingOrFailed", False)
    tolerations = spec["template"]["spec"]["tolerations"]
    assert {(each["key"].rpartition("/")[2], each["tolerationSeconds"]) for each in tolerations} == {
        ("not-ready", LOST_S),
        ("unreachable", LOST_S),
    }


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}, ["not-ready"]),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, ["not-ready", "unreachable"]),
        ({"operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoSchedule"}, ["not-ready", "unreachable"]),
    ],
)
def test_tolerations_of_a_patch_stay(given: dict[str, str], added: list[str], tmp_path: Path) -> None:
    file = tmp_path / "patches.yaml"
    file.write_text(json.dumps({"master": {"spec": {"tolerations": [given]}}}))
    first, *others = planned(cluster_spec=file).job("team")["spec"]["template"]["spec"]["tolerations"]
    assert first == given
    assert [each["key"].rpartition("/")[2] for each in others] == added


def test_only_containers_that_run_no_code_of_users_have_a_token() -> None:
    spec = pods_of(planned())["master"]["spec"]
    (token,) = (each["name"] for each in spec["volumes"] if "projected" in each)
    mounts = {
        each["name"]: token in [at["name"] for at in each["volumeMounts"]]
        for each in (*spec["initContainers"], *spec["containers"])
    }
    assert mounts == {"prepare": True, "submit": False, "master": True}


@pytest.mark.parametrize(
    ("flag", "default", "user"), [("", "", 65532), ("1000", "none", 1000), ("", "none", None), ("none", "7", None)]
)
def test_the_user_of_all_pods_is_chosen_or_left_to_the_cluster(flag: str, default: str, user: int | None) -> None:
    defaults = {**DEFAULTS, "run_as_user": default}
    for pod in pods_of(plan_job(TRAIN, KubernetesFlags(run_as_user=flag), defaults, IDENTITY)).values():
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"]
        assert [context.get(name) for name in ("runAsUser", "runAsGroup", "fsGroup")] == [user] * 3
