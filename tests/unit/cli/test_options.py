"""Options: each is declared once, and what it sets exists."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.cli.options import command
from elasticdl.cli.submission.flag_items import data_cache
from elasticdl.shared.data import ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.options import (
    Flag,
    Seconds,
    flags_of,
    from_plain_values,
    json_schema,
    plain_values,
    values_for,
)
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.spec import ExportTables, JobSpec, Limits, ModelSpec
from elasticdl.shared.kubernetes.options import KubernetesFlags

TARGETS = {target.__name__: target for target in (JobSpec, Limits, ModelSpec, Plan, ReaderOptions)}
SETTING = {name: flag for name, flag in flags_of(TrainFlags).items() if flag.sets}


def test_every_field_of_the_flags_is_a_flag() -> None:
    assert set(flags_of(TrainFlags)) == {field.name for field in dataclasses.fields(TrainFlags)}


@pytest.mark.parametrize("name", SETTING)
def test_a_flag_sets_a_field_of_its_type_and_has_its_default(name: str) -> None:
    owner, _, field = SETTING[name].sets.partition(".")
    target = TARGETS[owner]
    flag_type, field_type = typing.get_type_hints(TrainFlags)[name], typing.get_type_hints(target)[field]
    kinds = typing.get_args(flag_type)
    if typing.get_origin(flag_type) is typing.Literal:
        flag_type = type(kinds[0])
    elif kinds and typing.get_origin(kinds[0]) is typing.Literal:
        flag_type = type(typing.get_args(kinds[0])[0]) | None
    flag_type = float if flag_type is Seconds else flag_type
    assert field_type in (flag_type, *typing.get_args(flag_type))
    default = target.__dataclass_fields__[field].default
    assert default in (dataclasses.MISSING, TrainFlags.__dataclass_fields__[name].default)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("0", 0)])
def test_a_duration_may_have_a_unit(text: str, seconds: float) -> None:
    assert Seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "12q", "1 2", "nan", "inf", "-infs"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        Seconds(text)


def test_no_two_flags_set_the_same_field() -> None:
    targets = [flag.sets for flag in SETTING.values()]
    assert len(set(targets)) == len(targets)


def test_values_go_to_their_target_and_none_leaves_its_default() -> None:
    flags = TrainFlags(model_def="m", training_data="d", num_epochs=3, shuffle=Shuffle.TASKS, num_workers=5)
    plan = values_for("Plan", flags)
    assert (plan["epochs"], plan["shuffle"]) == (3, Shuffle.TASKS)
    assert "seed" not in plan
    assert values_for("Plan", dataclasses.replace(flags, seed=0))["seed"] == 0
    assert values_for("JobSpec", flags)["workers"] == 5


@pytest.mark.parametrize(("rule", "scale"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_learning_rate_follows_the_minibatches_per_update(
    rule: Literal["none", "linear", "sqrt"], scale: float
) -> None:
    flags = TrainFlags(model_def="m", training_data="d", use_async="false", num_workers=4, lr_scaling=rule)
    assert flags.learning_rate_scale == scale
    assert dataclasses.replace(flags, use_async="true").learning_rate_scale == 1.0
    assert dataclasses.replace(flags, use_async="true", grads_to_wait=4).learning_rate_scale == scale


def test_every_command_takes_debug() -> None:
    commands = getattr(typer.main.get_command(app), "commands", {})
    groups = {name: each.commands for name, each in commands.items() if hasattr(each, "commands")}
    assert list(groups) == ["zoo", "data", "fleet", "trainingjob", "events"]
    for each in [commands, *groups.values()]:
        without = [name for name, one in each.items() if not any("--debug" in option.opts for option in one.params)]
        assert without == [name for name in each if name in groups and each is commands]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Flags of a command."""

    width: Annotated[int, Flag("Width.", metavar="N", panel="Sizes", limits=(1, 9), sets="Box.width")]
    deep: Annotated[bool, Flag("Depth.", off="flat")] = True


def test_a_command_gets_its_options_and_its_dataclass() -> None:
    boxes = typer.Typer()
    seen = []

    @command(boxes)
    def box(sizes: Sizes, color: Annotated[str, Flag("Color.", name="colour", letter="c")] = "red") -> None:
        """Make a box."""
        seen.append((sizes, color))

    runner = CliRunner()
    assert runner.invoke(boxes, ["--width=3", "--flat", "-c", "blue"]).exit_code == 0
    assert seen == [(Sizes(width=3, deep=False), "blue")]
    assert runner.invoke(boxes, ["--flat"]).exit_code == 2
    refused = runner.invoke(boxes, ["--width=10"])
    assert isinstance(refused.exception, UserError)
    assert str(refused.exception) == "--width=10 is out of range\n  It must be 1 to 9."
    shown = runner.invoke(boxes, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
    assert "─ Sizes ─" in shown and "--colour" in shown and "--no" not in shown


@pytest.mark.parametrize(("size", "size_bytes"), [("10Gi", 10 << 30), (" 500Mi ", 500 << 20), ("1e9", 10**9), ("0", 0)])
def test_the_size_of_the_data_cache(size: str, size_bytes: int) -> None:
    flags = TrainFlags(model_def="m", training_data="d", data_cache_dir="~/cache", data_cache_size=size)
    assert data_cache(flags) == {"data_cache_dir": str(Path.home() / "cache"), "data_cache_bytes": size_bytes}


def test_the_default_of_the_data_cache_is_that_of_the_job() -> None:
    flags = TrainFlags(model_def="m", training_data="d")
    fields = {name: JobSpec.__dataclass_fields__[name].default for name in data_cache(flags)}
    assert data_cache(flags) == fields


@pytest.mark.parametrize(
    "given", [{"data_cache_size": "ten"}, {"data_cache_size": ""}, {"data_cache_dir": "s3://bucket/cache"}]
)
def test_a_wrong_data_cache_is_refused_and_the_flag_named(given: dict[str, str]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(UserError, match=f"--{name}={value}"):
        data_cache(TrainFlags(model_def="m", training_data="d", **given))  # type: ignore[arg-type]


def test_the_json_schema_says_what_each_option_takes() -> None:
    schema = json_schema(TrainFlags)
    assert schema["required"] == ["model_def", "training_data"]
    assert set(schema["properties"]) == set(flags_of(TrainFlags))
    assert schema["properties"]["num_workers"] == {
        "type": "integer",
        "description": "Worker processes.",
        "minimum": 1,
        "maximum": 1024,
        "default": 2,
    }
    shuffle = schema["properties"]["shuffle"]
    assert (shuffle["type"], shuffle["enum"]) == ("string", ["none", "tasks", "records", "global"])
    assert schema["properties"]["batch_deadline_secs"]["type"] == "number"
    assert schema["properties"]["csv_header"] == {
        "type": "boolean",
        "description": flags_of(TrainFlags)["csv_header"].help,
        "default": True,
    }


@pytest.mark.parametrize("owner", [TrainFlags, EvaluateFlags, PredictFlags, KubernetesFlags])
def test_a_json_schema_is_json_and_its_defaults_are_valid(owner: type) -> None:
    schema = json_schema(owner)
    assert json.loads(json.dumps(schema)) == schema
    for name, value in schema["properties"].items():
        default = value.get("default")
        assert default is None or default in value.get("enum", [default]), name
        assert default is None or "minimum" not in value or value["minimum"] <= default <= value["maximum"], name


def test_options_survive_json() -> None:
    flags = TrainFlags(
        model_def="m",
        training_data="d",
        shuffle=Shuffle.GLOBAL,
        export_tables=ExportTables.PARQUET,
        batch_deadline_secs=Seconds("2m"),
        run_dir=Path("jobs"),
    )
    values = json.loads(json.dumps(plain_values(flags)))
    assert values == {
        "model_def": "m",
        "training_data": "d",
        "shuffle": "global",
        "export_tables": "parquet",
        "batch_deadline_secs": 120.0,
        "run_dir": "jobs",
    }
    assert from_plain_values(TrainFlags, values) == flags
    with pytest.raises(ValueError, match="sometimes"):
        from_plain_values(TrainFlags, {**values, "shuffle": "sometimes"})
    with pytest.raises(TypeError, match="later"):
        from_plain_values(TrainFlags, {**values, "later": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--model_def=m.py", "--training_data="], "--training_data is empty"),
        (["train", "--model_def=m.py", "--training_data=,"], "--training_data is empty"),
        (["train", "--model_def=m.py", "--training_data=d", "--validation_data="], "--validation_data is empty"),
        (["train", "--model_def=m.py", "--training_data=d", "--output="], "--output is empty"),
        (["evaluate", "--model_def=m.py", "--model=m", "--validation_data=,"], "--validation_data is empty"),
        (
            ["predict", "--model_def=m.py", "--model=m", "--prediction_data=", "--output=o"],
            "--prediction_data is empty",
        ),
        (["data", "inspect", ","], "the path of the data is empty"),
        (
            ["train", "--model_def=m.py", "--training_data=d", "--job_name=A B", "--print_job_file"],
            "not a valid job name",
        ),
    ],
)
def test_empty_paths_and_wrong_names_are_refused(arguments: list[str], message: str) -> None:
    refused = CliRunner().invoke(app, arguments).exception
    assert isinstance(refused, UserError) and refused.usage
    assert message in str(refused)


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "put", "", "out"],
        ["zoo", "data", "mnist", ""],
        ["zoo", "init", ""],
        ["jobs", "--run_dir="],
        ["train", "--model_def=m.py", "--training_data=d", "--report="],
    ],
)
def test_an_empty_path_is_not_the_working_directory(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("1")
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2 and "the path is empty" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
