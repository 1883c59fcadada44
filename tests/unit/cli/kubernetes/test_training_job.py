"""A command line becomes a TrainingJob, which asks for the same as the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.cli.kubernetes.manifests.resources import parse_resources
from elasticdl.cli.kubernetes.new_job.creation import objects_text
from elasticdl.cli.kubernetes.new_job.model_files import ModelFiles, collect
from elasticdl.cli.kubernetes.new_job.training_job import training_job
from elasticdl.cli.options import with_default_choice
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import CommandFlags, EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.options import Flag, FlagType, Seconds, flags_of, from_plain_values, plain_values, types_of
from elasticdl.shared.kubernetes.names import MODEL_FOLDER
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
from elasticdl.shared.kubernetes.training_job.job_schema import ALIASES, NO_JOB_OPTIONS

INSIDE = f"{MODEL_FOLDER}/model.py:custom_model"
MODEL = ModelFiles(
    model_def=INSIDE, name="model", contents={"model.py": b"import layers\n\n\n# \xc3\xa4\n", "layers.py": b""}
)
COMMANDS: tuple[CommandFlags, ...] = (
    TrainFlags(model_def="model.py", training_data="s3://b/train", platform="kubernetes"),
    EvaluateFlags(model_def="model.py", validation_data="s3://b/test", model="clicks", platform="kubernetes"),
    PredictFlags(
        model_def="model.py", prediction_data="s3://b/new", model="clicks", output="s3://b/out", platform="kubernetes"
    ),
)


def other_value(kind: FlagType, flag: Flag, default: Any) -> Any:
    """A valid value that is not the default."""
    if kind.choices:
        return next(each for each in kind.choices if each != getattr(default, "value", default))
    if kind.kind is bool:
        return not default
    if issubclass(kind.kind, (int, float)):
        low, _ = flag.limits or (0, 0)
        return kind.kind(low + 3)
    return "one"


def variants(flags: CommandFlags) -> Iterator[tuple[str, CommandFlags]]:
    """(option, the flags with another value of it), for every option of a TrainingJob that may stand alone."""
    kinds = types_of(type(flags))
    for name, flag in flags_of(type(flags)).items():
        if (name in NO_JOB_OPTIONS and name not in ALIASES) or name in ("model_def", "envs"):
            continue
        value = other_value(kinds[name], flag, getattr(flags, name))
        changed = from_plain_values(type(flags), plain_values(flags) | {name: value})
        with contextlib.suppress(UserError):
            changed.check()
            yield name, changed


def plain(flags: CommandFlags) -> dict[str, Any]:
    return {name: getattr(flags, name) for name in flags_of(type(flags))}


def read_back(flags: CommandFlags, pods: KubernetesFlags) -> TrainingJobSpec:
    """What the object asks for that a command line becomes, after YAML."""
    text = objects_text([training_job(flags, pods, MODEL, pods.namespace)])
    return TrainingJobSpec.from_manifest(yaml.safe_load(text))


def as_planned(flags: CommandFlags) -> CommandFlags:
    """The flags as an object has them: one name of each option, a number of ps, and the model is among its files."""
    values = plain(flags) | {"model_def": "model.py:custom_model", "job_name": flags.job_name or read_name(flags)}
    values["num_ps_pods"] = flags.ps_pods or None
    for alias, name in ALIASES.items():
        if values.get(alias):
            values[name], values[alias] = values[alias], ""
    return type(flags)(**values)


def read_name(flags: CommandFlags) -> str:
    return f"model{flags.kind.name_suffix}"


@pytest.mark.parametrize("flags", COMMANDS, ids=lambda flags: flags.kind.value)
def test_every_option_survives(flags: CommandFlags) -> None:
    seen = dict(variants(flags))
    assert len(seen) > 25
    for name, other in seen.items():
        assert read_back(other, KubernetesFlags()).flags == as_planned(other), name


def test_processes_and_name_are_those_of_the_command_line() -> None:
    flags = replace(COMMANDS[0], num_workers=6, num_ps_pods=3, job_name="clicks")
    spec = read_back(flags, KubernetesFlags(namespace="team"))
    assert (spec.name, spec.namespace, spec.flags) == ("clicks", "team", as_planned(flags))
    assert (spec.worker.min, spec.worker.max, spec.ps.min, spec.ps.max) == (1, 6, 3, 3)
    assert spec.model_files == {"model.py": "import layers\n\n\n# ä\n", "layers.py": ""}


def test_the_pods_survive() -> None:
    pods = KubernetesFlags(
        namespace="team",
        image_name="models:1",
        master_image="master:1",
        ps_image="ps:1",
        image_pull_policy="Always",
        image_pull_deadline_secs=Seconds(30),
        image_pull_secrets="one,two",
        master_resource_request="cpu=0.2,memory=2Gi",
        worker_resource_request="cpu=2,memory=8Gi,ephemeral-storage=1Gi,nvidia.com/gpu=1",
        ps_resource_request="cpu=500m,memory=1Gi",
        worker_resource_limit="cpu=4",
        master_pod_priority="high",
        ps_pod_priority="middle",
        worker_pod_priority="high=0.5",
        volume="claim_name=data,mount_path=/data,sub_path=a/b,read_only=true;host_path=/c,type=Directory,mount_path=/c",
        service_account_name="own",
        run_as_user="1000",
        node_selector="disk=fast,zone=a",
        keep_finished=60,
    )
    differing = [name for name in flags_of(KubernetesFlags) if name in pods.given]
    left_out = {"cluster_spec", "yaml", "trainingjob", "master_resource_limit", "ps_resource_limit"}
    assert set(flags_of(KubernetesFlags)) - set(differing) == left_out
    read = read_back(COMMANDS[0], pods).pods
    assert replace(read, worker_resource_request="", worker_resource_limit="") == replace(
        pods, worker_resource_request="", worker_resource_limit=""
    )
    assert parse_resources("worker", read.worker_resource_request, read.worker_resource_limit) == parse_resources(
        "worker", pods.worker_resource_request, pods.worker_resource_limit
    )
    for priority in ("offline", ""):
        assert read_back(COMMANDS[0], replace(pods, worker_pod_priority=priority)).pods.worker_pod_priority == priority


def test_patches_of_pods_survive(tmp_path: Path) -> None:
    file = tmp_path / "patches.yaml"
    patches = {
        "all": {"metadata": {"labels": {"team": "ads"}}},
        "worker": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"gpu": "yes"}}},
    }
    file.write_text(yaml.safe_dump(patches))
    assert read_back(COMMANDS[0], KubernetesFlags(cluster_spec=file)).patches == patches


def test_only_what_differs_from_the_defaults_is_written() -> None:
    assert training_job(COMMANDS[0], KubernetesFlags(), replace(MODEL, contents={}, model_def="zoo.f"), "") == {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "model"},
        "spec": {
            "kind": "train",
            "job": {"model_def": "zoo.f", "training_data": "s3://b/train"},
            "worker": {"min": 1, "max": 2},
            "ps": {"min": 1, "max": 1},
        },
    }


def test_a_model_of_the_zoo_is_written_as_lines() -> None:
    text = objects_text([training_job(COMMANDS[0], KubernetesFlags(), collect("deepfm.custom_model", ""), "")])
    assert "      deepfm.py: |\n" in text
    assert "        def custom_model(" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"envs": "LEVEL=1,API_KEY=x"}, "API_KEY of --envs may be a secret"),
        ({"nats_url": "nats://u:p@host"}, "--nats_url may be a secret"),
        ({"spare_workers": 1}, "--spare_workers=1 can't be combined with --trainingjob"),
        ({"job_name": "Clicks"}, r"metadata\.name"),
    ],
)
def test_what_an_object_can_not_contain_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        training_job(replace(COMMANDS[0], **changes), KubernetesFlags(), MODEL, "")  # type: ignore[arg-type]


def test_a_model_with_weights_is_refused() -> None:
    model = replace(MODEL, contents={**MODEL.contents, "model.keras": b"PK\x03\x04\xff"})
    with pytest.raises(UserError, match="this model has weights"):
        training_job(COMMANDS[0], KubernetesFlags(), model, "")


def test_environment_variables_that_are_no_secrets_are_kept() -> None:
    assert read_back(replace(COMMANDS[0], envs="LEVEL=1,A=b,c"), KubernetesFlags()).flags.envs == "LEVEL=1,A=b,c"


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        (["train", "--trainingjob"], ["train", "--trainingjob=create"]),
        (["train", "--trainingjob", "--eager"], ["train", "--trainingjob=create", "--eager"]),
        (["train", "--trainingjob", "print"], ["train", "--trainingjob", "print"]),
        (["train", "--trainingjob=print"], ["train", "--trainingjob=print"]),
    ],
)
def test_the_flag_alone_means_to_create(given: list[str], understood: list[str]) -> None:
    assert with_default_choice(given, "--trainingjob", ("create", "print")) == understood
