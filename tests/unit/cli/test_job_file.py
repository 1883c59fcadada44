"""``--file``: flags from a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from elasticdl.cli.job_file import read_job_file
from elasticdl.cli.options import Flag, command, flags_of
from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.shared.errors import UserError

KNOWN = {name: flag.repeated for name, flag in flags_of(TrainFlags).items()}


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
        ("num_worker: 3", r"unknown flag 'num_worker'\n  Did you mean 'num_workers'\?"),
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
