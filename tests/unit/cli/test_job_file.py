"""``--file``: flags from a YAML file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from elasticdl.cli.job_file import job_file_text, read_job_file
from elasticdl.cli.options import command, given_values
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.options import Flag, flags_of, types_of
from elasticdl.shared.kubernetes.options import KubernetesFlags

KNOWN = types_of(TrainFlags, KubernetesFlags)


@dataclass(frozen=True, kw_only=True)
class Flags:
    data: Annotated[str, Flag("Needed.")]
    workers: Annotated[int, Flag("A number.", limits=(1, 9))] = 2
    kind: Annotated[Literal["one", "two"], Flag("A choice.")] = "one"
    fast: Annotated[bool, Flag("A switch.")] = False
    header: Annotated[bool, Flag("A switch that is on.", off="no_header")] = True
    columns: Annotated[str, Flag("Several values.", repeated=True)] = ""


def parsed(*arguments: str) -> Flags:
    found: list[Flags] = []
    app = typer.Typer()

    @command(app, "run")
    def run(flags: Flags) -> None:
        found.append(flags)

    result = CliRunner().invoke(app, [*arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return found[0]


def written(text: str, path: Path) -> str:
    path.write_text(text)
    return f"--file={path}"


def test_flags_come_from_the_file_and_the_command_line_takes_precedence(tmp_path: Path) -> None:
    text = "data: here\nworkers: 3\nkind: two\nfast: true\nheader: false\ncolumns: [a, b]\n"
    file = written(text, tmp_path / "job.yaml")
    assert parsed(file) == Flags(data="here", workers=3, kind="two", fast=True, header=False, columns="a,b")
    given = parsed("--workers=5", file, "--kind=one", "--columns=c")
    assert given == Flags(data="here", workers=5, kind="one", fast=True, header=False, columns="c")


def test_limits_hold_for_values_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--workers=10 is out of range"):
        parsed(written("data: here\nworkers: 10", tmp_path / "job.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nnum_worker: 3", r"line 2: unknown flag 'num_worker'\n  Did you mean 'num_workers'\?"),
        ("num-workers: 3", r"Did you mean 'num_workers'\?"),
        ("seed: 1\n\nseed: 2", "line 3: seed is given a second time"),
        ("num_workers: many", "line 1: num_workers is a whole number, not 'many'"),
        ("num_workers: 2.5", "num_workers is a whole number, not 2.5"),
        ("num_workers: true", "num_workers is a whole number, not true"),
        ("num_workers: [1, 2]", r"num_workers is a whole number, not \[1, 2\]"),
        ("min_delta: low", "min_delta is a number, not 'low'"),
        ("eager: 3", "eager is true or false, not 3"),
        ("shuffle: gloabl", r"shuffle is one of none, tasks, .*, not 'gloabl'. Did you mean 'global'\?"),
        ("label: on", "label is a text, and YAML reads true as true or false. Put it in quotes."),
        ("job_name: 2024-01-01", "job_name is a text, and YAML reads 2024-01-01 as date"),
        ("columns: [a, no]", "columns is a text, and YAML reads false as true or false"),
        ("envs: {A: 1, B: }", "envs has no value for 'B'"),
        ("report: [a.json]", "report is one path"),
        ("- a\n- b", "has no flags"),
        ("a: [", "is not YAML"),
        ("", "has no flags"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        read_job_file(file, KNOWN)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"job\.yaml can't be read: No such file"):
        read_job_file(tmp_path / "job.yaml", KNOWN)


def test_dicts_are_items_of_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "model_params: {units: 32, shape: [1, 2], name: x}\nenvs: {A: 1, B: two}\nfill_missing: {id: -1}\nseed:"
    )
    assert read_job_file(file, KNOWN) == {
        "model_params": "units=32;shape=[1, 2];name=x",
        "envs": "A=1,B=two",
        "fill_missing": ["id=-1"],
    }


def test_values_of_yaml_become_what_the_command_line_takes(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "use_async: false\nreport: 3\nmin_delta: 1e-5\ndata_reader_params: {table: '1', rows: 2}\n"
        "volume: [{claim_name: a, mount_path: /a, read_only: true}, {claim_name: b, mount_path: /b}]\n"
    )
    assert read_job_file(file, KNOWN) == {
        "use_async": "false",
        "report": "3",
        "min_delta": "1e-5",
        "data_reader_params": "table='1';rows=2",
        "volume": "claim_name=a,mount_path=/a,read_only=true;claim_name=b,mount_path=/b",
    }


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12) | st.sampled_from(
    [
        "on",
        "null",
        "~",
        "1e3",
        "012",
        "2024-01-01",
        "a,b",
        "#x",
        "x: y",
        "- a",
        "{a: 1}",
        "'",
        '"',
        " x ",
        "%",
        "=",
        ",",
    ]
)
"""Texts that YAML could read as something else. A command line has no control characters in practice."""


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Flags of ``elasticdl train`` with any values of their types, in any order, some of them several times."""
    arguments = [f"--{name}={draw(TEXTS)}" for name in ("model_def", "training_data")]
    for owner in (TrainFlags, KubernetesFlags):
        flags = flags_of(owner)
        for name in draw(st.lists(st.sampled_from(sorted(flags)), max_size=8)):
            kind = KNOWN[name]
            if kind.kind is bool:
                off = flags[name].off
                arguments.append(f"--{draw(st.sampled_from([name, off])) if off else name}")
                continue
            low, high = flags[name].limits or (0, 9)
            values: st.SearchStrategy[object] = TEXTS
            if kind.choices:
                values = st.sampled_from(kind.choices)
            elif kind.kind is int:
                values = st.integers(int(low), int(high))
            elif kind.kind is Path:
                values = TEXTS.filter(bool)  # An empty path is refused.
            elif issubclass(kind.kind, float):
                values = st.floats(low, high, allow_nan=False)
            arguments.append(f"--{name}={draw(values)}")
    return arguments


@given(command_lines())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_job_file_of_a_command_line_gives_the_same_flags(arguments: list[str]) -> None:
    found: list[tuple[object, ...]] = []
    app = typer.Typer()

    @command(app, "train")
    def train(flags: TrainFlags, pods: KubernetesFlags, context: typer.Context) -> None:
        found.append((flags, pods, job_file_text("train", given_values(context, flags, pods), KNOWN)))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.yaml")
        for line in (arguments, ["-f", str(file)]):
            result = CliRunner().invoke(app, line)
            assert result.exit_code == 0, result.output
            file.write_text(str(found[-1][-1]))
    assert found[0] == found[1]
