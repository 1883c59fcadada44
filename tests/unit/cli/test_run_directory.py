"""Job folders: their record, their lock, how they are found; and what a model file's digest notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.cli.commands.jobs import scale, stop
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.open_log import take_turn
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory, default_root, find
from elasticdl.cli.submission.initial_model import find_initial_model, is_job
from elasticdl.cli.submission.trained_model import find_model
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_digest import changed_files, combined, file_digests
from elasticdl.shared.names import JobId
from elasticdl.shared.storage.atomic import replace_text


def made(root: Path, job: str) -> RunDirectory:
    run = RunDirectory(root, JobId(job))
    run.create()
    run.write(JobRecord(job=run.job, created_s=1.0, state="training", launcher_pid=12))
    return run


def test_the_record_survives_and_later_fields_are_ignored(tmp_path: Path) -> None:
    run = made(tmp_path, "job-1")
    text = (run.path / "job.json").read_text()
    (run.path / "job.json").write_text(text.replace("{", '{"a_later_field": 1,', 1))
    assert run.read() == JobRecord(job=run.job, created_s=1.0, state="training", launcher_pid=12)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = made(tmp_path, "job-1")
    (run.path / "job.json").write_text("{")
    with pytest.raises(UserError, match=r"job\.json is damaged"):
        run.read()


def test_jobs_are_found_by_id_or_by_a_name_that_only_one_has(tmp_path: Path) -> None:
    made(tmp_path, "digits-aaaaaa")
    made(tmp_path, "clicks-bbbbbb")
    made(tmp_path, "clicks-cccccc")
    assert find(tmp_path, "digits-aaaaaa").job == find(tmp_path, "digits").job == "digits-aaaaaa"
    with pytest.raises(UserError, match="2 jobs are named 'clicks'"):
        find(tmp_path, "clicks")
    with pytest.raises(UserError, match="there is no job 'other'") as unknown:
        find(tmp_path, "other")
    assert "clicks-cccccc" in unknown.value.hint and "elasticdl jobs" in unknown.value.hint


def test_where_there_are_no_jobs_the_hint_does_not_send_users_to_a_list_of_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no job 'other'") as unknown:
        find(tmp_path, "other")
    assert "holds no jobs" in unknown.value.hint and "--run_dir" in unknown.value.hint
    assert "elasticdl jobs" not in unknown.value.hint


def test_the_default_folder_depends_on_the_environment() -> None:
    assert default_root({"ELASTICDL_RUN_DIR": "/a", "XDG_STATE_HOME": "/b"}) == Path("/a")
    assert default_root({"XDG_STATE_HOME": "/b"}) == Path("/b/elasticdl/jobs")
    assert default_root({}) == Path.home() / ".local/state/elasticdl/jobs"


def test_digests_cover_what_a_model_file_imports_from_its_folder(tmp_path: Path) -> None:
    files = {
        "model.py": "import os\nimport layers\nfrom features import columns\n",
        "layers.py": "from . import names\n",
        "names.py": "",
        "features/__init__.py": "",
        "features/columns.py": "",
        "unrelated.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = file_digests(tmp_path / "model.py")
    assert set(before) == set(files) - {"unrelated.py"}
    (tmp_path / "unrelated.py").write_text("edited = True\n")
    assert combined(file_digests(tmp_path / "model.py")) == combined(before)
    (tmp_path / "features/columns.py").write_text("edited = True\n")
    now = file_digests(tmp_path / "model.py")
    assert changed_files(before, now) == ["features/columns.py"]
    assert combined(now) != combined(before)


@pytest.mark.parametrize(
    ("state", "next_step", "hint"),
    [
        ("succeeded", "", ""),
        ("failed", "Fix the model file.", "Fix the model file."),
        ("training", "", "elasticdl status job-1 --run_dir={root}"),
    ],
)
def test_a_job_that_is_not_running_can_not_be_scaled_and_the_hint_says_what_to_do(
    tmp_path: Path, state: str, next_step: str, hint: str
) -> None:
    run = made(tmp_path, "job-1")
    run.write(replace(run.read(), state=state, next_step=next_step))
    with pytest.raises(UserError, match="can't be scaled") as refused:
        scale(LocalJobHandle(find(tmp_path, "job-1")), workers=2, ps=0)
    assert hint.format(root=tmp_path) in refused.value.hint
    assert bool(refused.value.hint) == bool(hint)


def test_hints_give_the_run_directory_unless_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "job-1")
    with pytest.raises(UserError, match=f"elasticdl status job-1 --run_dir={tmp_path}"):
        stop(LocalJobHandle(find(tmp_path, "job-1")))
    monkeypatch.setenv("ELASTICDL_RUN_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"elasticdl status job-1$"):
        stop(LocalJobHandle(find(tmp_path, "job-1")))


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    file, link = tmp_path / "report.json", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    replace_text(link, "new")
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    with pytest.raises(UnicodeEncodeError):
        replace_text(file, "half\udcff")
    assert file.read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "report.json"]


def test_a_folder_with_a_model_comes_before_a_job_of_its_name_and_any_other_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    run = made(root, "digits-aaaaaa")
    run.write(replace(run.read(), launcher_pid=os.getpid()))
    assert is_job("digits", root) and is_job("digits-aaaaaa", root)
    assert not is_job("./digits", root) and not is_job("digits.keras", root) and not is_job("other", root)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    lines: list[str] = []
    for find_place in (find_model, find_initial_model):
        with run.lock(), pytest.raises(UserError, match="job digits-aaaaaa is running"):
            find_place("digits", root, lines.append)
        assert lines.pop() == "Reading the log and the snapshots of job digits-aaaaaa"
    (tmp_path / "digits" / "model.keras").touch()
    assert (
        find_model("digits", root, lines.append).exported == find_initial_model("digits", root, lines.append).file != ""
    )


def test_only_the_user_reads_the_secrets_of_a_job(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job"))
    run.create()
    record = JobRecord(job=run.job, created_s=1.0, state="running", secret_envs={"API_KEY": "hunter2"})
    run.write(record)
    assert (run.path / "job.json").stat().st_mode & 0o077 == 0
    assert run.read().secret_envs == {"API_KEY": "hunter2"}
    assert "hunter2" not in repr(record)


def test_commands_that_read_an_ended_job_take_turns(tmp_path: Path) -> None:
    run = made(tmp_path, "job-1")

    async def read(order: list[str], name: str, before: asyncio.Event | None = None) -> None:
        with contextlib.ExitStack() as stack:
            await take_turn(run, stack)
            if before is not None:
                await before.wait()
            order.append(name)

    async def both() -> list[str]:
        order: list[str] = []
        waiting = asyncio.Event()
        readers = [asyncio.create_task(read(order, "first", waiting)), asyncio.create_task(read(order, "second"))]
        await asyncio.sleep(0)
        assert run.is_locked()
        waiting.set()
        await asyncio.gather(*readers)
        return order

    assert asyncio.run(both()) == ["first", "second"]


def test_a_reader_does_not_wait_for_a_launcher(tmp_path: Path) -> None:
    run = made(tmp_path, "job-1")
    run.write(replace(run.read(), launcher_pid=os.getpid()))
    with run.lock(), contextlib.ExitStack() as stack:
        assert run.is_launched(run.read())
        with pytest.raises(UserError, match="job job-1 is running"):
            asyncio.run(take_turn(run, stack))
