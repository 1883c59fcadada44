"""The command line as a user types it: help, refusals and messages; nothing is started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.main import app, main
from elasticdl.cli.options import plain_switches
from elasticdl.cli.submission.flag_items import parse_envs
from elasticdl.cli.submission.plan_text import print_plan
from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import PS_MAX
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.options import flags_of
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.storage import to_uri

MODEL = """
def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
def feed_batch(records, mode, metadata): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model and 130 records in two files."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data").mkdir()
    for name, records in (("a", 100), ("b", 30)):
        lines = ["x,label", *(f"{number}.5,{number % 2}" for number in range(records))]
        (tmp_path / "data" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELASTICDL_RUN_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Command(Protocol):
    def __call__(self, *arguments: str) -> Done: ...


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """``main`` handles signals until the end of its process."""
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.fixture
def elasticdl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["elasticdl", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        out, err = capsys.readouterr()
        return Done(int(ending.value.code or 0), out, err)

    return run


TRAIN = ("train", "--model_def=model.py", "--training_data=data")


def test_a_command_line_is_printed_as_a_job_file_that_starts_the_same_job(folder: Path, elasticdl: Command) -> None:
    more = ("--num_epochs=3", "--use_async=false", "--shuffle=none", "--seed=1", "--no_csv_header", "--dry_run")
    printed = elasticdl(*TRAIN, *more, "--print_job_file")
    assert printed.returncode == 0, printed.stderr
    assert not (folder / "jobs").exists()
    (folder / "job.yaml").write_text(printed.stdout)
    assert elasticdl("train", "-f", "job.yaml", "--print_job_file").stdout == printed.stdout
    assert elasticdl(*TRAIN, "--min_delta=0.1", "--print_job_file").returncode == 2


@pytest.mark.parametrize(("kind", "data"), [("evaluate", "--validation_data=d"), ("predict", "--prediction_data=d")])
def test_other_commands_print_job_files_too(kind: str, data: str, elasticdl: Command) -> None:
    more = ("--output=o",) if kind == "predict" else ()
    printed = elasticdl(kind, "--model_def=m", "--model=out", data, *more, "--print_job_file")
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert lines[0] == f"# elasticdl {kind} -f FILE"
    assert {"model_def: m", "model: out", data[2:].replace("=", ": ")} <= set(lines)


def test_the_help_of_train_shows_every_flag_in_full_on_a_narrow_terminal() -> None:
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    for flag in flags_of(TrainFlags):
        assert f"--{flag} " in shown, flag
    for panel in ("Model", "Data", "Training", "Processes", "Snapshots and storage", "Run"):
        assert f"─ {panel} ─" in shown


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--namespace=team", "--namespace needs --platform=kubernetes"),
        ("--distribution_strategy=Allreduce", "AllreduceStrategy"),
        ("--num_workers=0", "--num_workers=0 is out of range"),
        ("--minibatch_size=-1", "--minibatch_size=-1 is out of range"),
        ("--seed=-1", "--seed=-1 is out of range"),
        ("--model_params=x", "--model_params: 'x' is not of the form name=value"),
        ("--envs=x", "--envs: the item 'x' is not of the form NAME=value"),
        (
            "--envs=A=1;B=2",
            "--envs: the value of A may be several variables, which are separated by commas, not by ';'",
        ),
        ("--job_name=A_b", "--job_name='A_b' is not a valid job name"),
        ("--csv_delimiter=ab", "--csv_delimiter='ab' can't separate columns"),
        ("--model_zoo=nowhere", "--model_zoo=nowhere is not a folder"),
        ("--num_epochs=some", "--num_epochs"),
        ("--no_such_flag=1", "--no_such_flag"),
        ("--min_delta=0.1", "--min_delta needs --save_best or --early_stopping_patience"),
        ("--lr_scaling=sqrt", "changes nothing: an asynchronous update has one minibatch"),
    ],
)
def test_wrong_flags_are_usage_errors(folder: Path, flag: str, message: str, elasticdl: Command) -> None:
    done = elasticdl(*TRAIN, flag)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "jobs").exists()


def test_two_sizes_of_a_batch_are_refused() -> None:
    flags = TrainFlags(model_def="m", training_data="d", use_async="false", global_batch_size=64, minibatch_size=48)
    with pytest.raises(UserError, match="give only one of them"):
        flags.check()


def test_snapshots_have_one_place(folder: Path, elasticdl: Command) -> None:
    done = elasticdl(*TRAIN, "--storage=a", "--checkpoint_dir=b")
    assert done.returncode == 2
    assert "--checkpoint_dir and --storage" in done.stderr


def test_missing_data_of_a_zoo_model_names_the_command_that_writes_it(folder: Path, elasticdl: Command) -> None:
    (folder / "mnist_mine.py").write_text(MODEL)
    done = elasticdl("train", "--model_def=mnist_mine.custom_model", "--training_data=/nowhere/train")
    assert done.returncode == 2
    assert "--training_data=/nowhere/train does not exist" in done.stderr
    assert "elasticdl zoo data mnist /nowhere" in done.stderr


def test_missing_data_names_what_was_probably_meant(folder: Path, elasticdl: Command) -> None:
    done = elasticdl("train", "--model_def=model.py", "--training_data=dat")
    assert done.stderr == "Error: --training_data=dat does not exist\n  Did you mean data?\n"


@pytest.mark.parametrize("dry", [[], ["--dry_run"]])
@pytest.mark.parametrize(
    ("flag", "exit_code", "says"),
    [
        ("--output=file", 1, "--output=file can't be written"),
        ("--output=file/model", 1, "--output=file/model can't be written"),
        ("--storage=file", 1, "--storage=file can't be written"),
        ("--run_dir=file/jobs", 1, "can't be written"),
        ("--output=gs://bucket/model", 2, "'gs://bucket/model' has no supported scheme"),
        ("--storage=s3:///model", 2, "has no bucket"),
        ("--report=file/report.json", 2, "--report=file/report.json can't be written"),
        ("--report=data", 2, "--report=data can't be written: it is a folder"),
        ("--report=no/report.json", 2, "--report=no/report.json can't be written: the folder "),
        ("--output=data", 2, "--output=data is inside the data data, so it would be read as data"),
        ("--output=data/a/b", 2, "--output=data/a/b is inside the data data"),
        ("--storage=data/x", 2, "--storage=data/x is inside the data data"),
        ("--checkpoint_dir=data/x", 2, "--checkpoint_dir=data/x is inside the data data"),
        ("--run_dir=data/x", 2, "--run_dir="),
        ("--report=data/report.json", 2, "--report=data/report.json is inside the data data"),
        ("--validation_data=.", 2, "is inside the data ., so"),
    ],
)
def test_a_place_that_can_not_be_used_is_found_before_anything_starts(
    folder: Path, elasticdl: Command, dry: list[str], flag: str, exit_code: int, says: str
) -> None:
    (folder / "file").write_text("")
    done = elasticdl(*TRAIN, flag, *dry)
    assert says in done.stderr
    assert done.returncode == exit_code
    assert sorted(path.name for path in folder.iterdir()) == ["data", "file", "model.py"]


def test_the_output_may_be_beside_the_data_that_a_glob_names(folder: Path) -> None:
    flags = TrainFlags(
        model_def="model.py", training_data="data/*.csv", output="data/model", report=Path("data/r.json")
    )
    assert prepare(flags, folder / "jobs", print).spec.output == to_uri("data/model")


def test_debug_shows_the_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["elasticdl", "train", "--model_def=model.py", "--training_data=nowhere", "--debug"]
    )
    with pytest.raises(UserError, match="nowhere does not exist"):
        main()


def test_the_plan_is_told_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = TrainFlags(
        model_def="model.py",
        training_data="data",
        num_epochs=3,
        minibatch_size=10,
        seed=5,
        output="out",
        shuffle=Shuffle.RECORDS,
    )
    print_plan(prepare(flags, folder / "jobs", print), JobConsole())
    stdout = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in stdout.splitlines() if "│" in line]
    assert [str(folder / "data" / "a.csv"), "100", "10", "2"] in rows
    assert [str(folder / "data" / "b.csv"), "30", "3", "1"] in rows
    assert ["one epoch", "130", "13", "3"] in rows
    assert ["all epochs (3)", "390", "39", "9"] in rows
    assert "seed 5" in stdout
    assert sorted(path.name for path in folder.iterdir()) == ["data", "model.py"]


def test_unknown_jobs_are_named(folder: Path, elasticdl: Command) -> None:
    for command in (["status", "none"], ["stop", "none"], ["resume", "none"], ["task", "none", "1"]):
        done = elasticdl(*command)
        assert done.returncode == 1
        assert "there is no job 'none'" in done.stderr
    assert "No jobs in" in elasticdl("jobs").stdout


def test_envs_may_have_commas_in_values() -> None:
    assert parse_envs("A=1,2,B=x=y,C=") == {"A": "1,2", "B": "x=y", "C": ""}
    assert parse_envs("") == {}
    with pytest.raises(UserError):
        parse_envs("=1")


@pytest.mark.parametrize("flag", ["--workers=0", "--ps=0"])
def test_a_job_is_not_scaled_to_nothing(folder: Path, elasticdl: Command, flag: str) -> None:
    done = elasticdl("scale", "job", flag)
    assert done.stderr.startswith(f"Error: {flag} is out of range\n  It must be 1 to ")
    assert done.returncode == 2


def test_switches_take_the_old_form() -> None:
    typed = ["--eager=True", "--debug=false", "--dry_run", "--job_name=true", "--csv_header=maybe"]
    assert plain_switches(typed, TrainFlags) == ["--eager", "--dry_run", "--job_name=true", "--csv_header=maybe"]


def test_there_are_no_more_ps_than_partitions() -> None:
    assert PS_MAX == PARTITIONS


def test_models_of_the_zoo_need_no_flag(folder: Path) -> None:
    flags = TrainFlags(model_def="census_wide_deep.custom_model", training_data="data")
    model = prepare(flags, folder / "jobs", print).spec.model
    assert (Path(model.path).name, model.symbol) == ("census_wide_deep.py", "custom_model")


def test_a_command_that_has_read_parquet_ends_cleanly(tmp_path: Path) -> None:
    """Threads of pyarrow that free what was read aborted one command of twenty."""
    table = pa.table({"x": pa.array([], pa.float32()), "label": pa.array([], pa.int64())})
    pq.write_table(table, tmp_path / "empty.parquet")
    command = [sys.executable, "-m", "elasticdl.cli", "data", "inspect", str(tmp_path)]
    for _ in range(3):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 1, ended.stderr
        assert "has no records" in ended.stderr
