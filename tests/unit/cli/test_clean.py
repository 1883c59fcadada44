"""``elasticdl clean``: which jobs are deleted, and when it asks."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest

from elasticdl.cli.commands.clean import CleanSettings, clean
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory, make_temporary, remove_temporary
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId

ALL = CleanSettings(older_than_days=0.0, unfinished=True)


class Terminal(io.StringIO):
    """Standard input of a user who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A finished job, a stopped one and a damaged one."""
    for name in ("finished", "stopped", "damaged"):
        run = RunDirectory(tmp_path, JobId(f"{name}-1"))
        run.create()
        run.write(JobRecord(job=run.job, created_s=1.0, state="succeeded" if name == "finished" else "stopped"))
    (tmp_path / "damaged-1" / "job.json").write_text("{")
    return tmp_path


def left(root: Path) -> set[str]:
    return {path.name.removesuffix("-1") for path in root.iterdir()}


def test_only_finished_jobs_are_deleted_and_without_a_question(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    clean(root, [], CleanSettings(older_than_days=1.0))
    assert left(root) == {"finished", "stopped", "damaged"}
    clean(root, [], CleanSettings(older_than_days=0.0))
    assert left(root) == {"stopped", "damaged"}


@pytest.mark.parametrize(("answer", "kept"), [("y\n", set()), ("n\n", {"finished", "stopped", "damaged"})])
def test_jobs_that_could_be_resumed_are_deleted_after_a_question(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kept: set[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    clean(root, [], ALL)
    assert left(root) == kept


def test_without_a_terminal_the_question_has_to_be_answered_by_a_flag(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UserError, match="--yes"):
        clean(root, [], ALL)
    assert len(left(root)) == 3
    clean(root, [], CleanSettings(older_than_days=0.0, unfinished=True, confirmed=True))
    assert left(root) == set()


def test_a_dry_run_lists_jobs_and_deletes_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean(root, [], CleanSettings(older_than_days=0.0, unfinished=True, dry_run=True))
    assert capsys.readouterr().out.count("Would delete") == 3
    assert len(left(root)) == 3


def test_a_job_that_was_killed_before_it_began_is_deleted_at_once(root: Path) -> None:
    for name in ("killed", "named", "submitted"):
        run = RunDirectory(root, JobId(f"{name}-1"))
        run.create()
        temporary = make_temporary(run.job)
        run.write(JobRecord(job=run.job, created_s=1.0, state="starting", temporary=temporary))
        (run.nats / "1.blk").write_bytes(b"event" if name == "submitted" else b"")
    clean(root, ["named-1"], CleanSettings())
    clean(root, [], CleanSettings())
    assert left(root) == {"finished", "stopped", "damaged", "submitted"}
    assert not (Path(tempfile.gettempdir()) / "elasticdl-killed-1").exists()
    remove_temporary(run.job, temporary)


def test_a_stopped_job_is_deleted_by_name_only_with_all(root: Path) -> None:
    with pytest.raises(UserError, match="can still be resumed"):
        clean(root, ["stopped-1"], CleanSettings(confirmed=True))
    clean(root, ["stopped-1"], CleanSettings(unfinished=True, confirmed=True))
    assert left(root) == {"finished", "damaged"}


def test_what_remains_in_another_storage_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, storage in (("own", tmp_path / "jobs" / "own-1" / "storage"), ("other", tmp_path / "other" / "other-1")):
        run = RunDirectory(tmp_path / "jobs", JobId(f"{name}-1"))
        run.create()
        storage.mkdir(parents=True, exist_ok=True)
        run.write(JobRecord(job=run.job, created_s=1.0, state="succeeded", storage=storage.as_uri()))
    clean(tmp_path / "jobs", ["own-1", "other-1"], CleanSettings())
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("remain in") == 1
    assert f"The job's snapshots and indices remain in {tmp_path / 'other' / 'other-1'}" in shown
    assert (tmp_path / "other" / "other-1").is_dir()
