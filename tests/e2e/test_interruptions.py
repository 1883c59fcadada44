"""Ctrl-C, kills and resumes of real jobs: whatever happens, every batch counts exactly once."""

from __future__ import annotations

import json
import re
import signal

import pytest
from tests.deadline import Gate
from tests.e2e.elastic import Elastic, check_exact, left_behind
from tests.e2e.models import LINEAR, SLOW, write_data, write_model


@pytest.fixture
def slow_job(elastic: Elastic) -> list[str]:
    """Flags of a job that takes its time."""
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=20_000)
    return ["--model_def=model.py", "--training_data=data", "--minibatch_size=32", "--num_epochs=2"]


def test_ctrl_c_leaves_nothing_running_and_the_printed_line_goes_on(elastic: Elastic, slow_job: list[str]) -> None:
    with elastic.start("train", *slow_job) as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
        line = running.wait_for(r"elasticdl (resume .*)")
    assert left_behind(elastic.folder) == []
    elastic.remove_delay()
    resumed = elastic.run(*line.group(1).split())
    assert resumed.exit_code == 0, resumed.output
    check_exact(resumed)
    assert resumed.report["resumes"] == 1


@pytest.mark.parametrize(("number", "dry"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_a_signal_while_the_model_is_checked_leaves_nothing(
    elastic: Elastic, number: signal.Signals, *, dry: bool
) -> None:
    temporary = elastic.folder / "temporary"
    temporary.mkdir()
    elastic.environment["TMPDIR"] = str(temporary)
    write_model(elastic.folder, "import time\nopen('imported', 'w').write('yes')\ntime.sleep(1000)\n" + LINEAR)
    write_data(elastic.folder)
    imported = Gate(elastic.folder / "imported")
    flags = ["--model_def=model.py", "--training_data=data", "--output=out", *["--dry_run"] * dry]
    with elastic.start("train", *flags) as running:
        imported.wait()
        running.process.send_signal(number)
        running.process.send_signal(number)
        assert running.wait() == 130
        what = "dry run" if dry else "job"
        running.wait_for(f"Interrupted before training began; nothing is left of the {what}.\n$")
    assert "Traceback" not in running.output
    assert left_behind(elastic.folder) == []
    assert not list(elastic.jobs.glob("*"))
    assert not list(temporary.iterdir())
    assert not (elastic.folder / "out").exists()


def test_a_resume_elsewhere_finds_relative_paths_and_a_copied_data_set(elastic: Elastic, slow_job: list[str]) -> None:
    model = elastic.folder / "model.py"
    model.write_text(model.read_text() + "\n\nassert open('beside.txt').read() == 'here'\n")
    (elastic.folder / "beside.txt").write_text("here")
    with elastic.start("train", *slow_job) as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
    (job,) = elastic.jobs.iterdir()
    data = elastic.folder / "data" / "train.csv"
    content = data.read_bytes()
    data.unlink()
    data.write_bytes(content)
    elastic.remove_delay()
    elsewhere = elastic.folder / "elsewhere"
    elsewhere.mkdir()
    resumed = elastic.run("resume", job.name, folder=elsewhere)
    assert resumed.exit_code == 0, resumed.output
    assert "train.csv was copied, touched or changed. Comparing its content." in resumed.output
    check_exact(resumed)


@pytest.mark.parametrize(
    ("pod", "back"),
    [("worker-0", "worker-0 died"), ("ps-0", "ps-0 restored"), ("master", "The new master has recovered")],
)
def test_a_killed_process_costs_no_batch(elastic: Elastic, slow_job: list[str], pod: str, back: str) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *slow_job, "--report", str(report)) as running:
        running.wait_for_progress()
        elastic.kill(pod)
        running.wait_for(back)
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    assert facts["audit"]["repaired"] == 0
    assert facts["services"][pod]["restarts"] == 1


def test_a_killed_broker_costs_no_batch(elastic: Elastic, slow_job: list[str]) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *slow_job, "--report", str(report)) as running:
        running.wait_for_progress()
        elastic.kill("nats-server")
        running.wait_for("nats-server died")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    assert json.loads(report.read_text())["audit"]["exact"] is True


@pytest.mark.thorough
def test_frozen_processes_are_noticed_and_replaced(elastic: Elastic, slow_job: list[str]) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *slow_job, "--num_epochs=5", "--report", str(report)) as running:
        running.wait_for_progress()
        for pod in ("worker-0", "ps-0", "master"):
            elastic.kill(pod, signal.SIGSTOP)
            running.wait_for(f"(No heartbeat from {pod}|{pod} does not respond)")
        elastic.kill("nats-server", signal.SIGSTOP)
        running.wait_for("nats-server does not respond")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    assert facts["audit"]["repaired"] == 0


def test_a_killed_launcher_takes_everything_with_it_and_the_job_can_be_resumed(
    elastic: Elastic, slow_job: list[str]
) -> None:
    with elastic.start("train", *slow_job) as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGKILL)
        running.wait()
        elastic.wait_until_gone()
    assert "its launcher is not running" in elastic.run("status", elastic.job).output
    followed = elastic.run("events", elastic.job, "--follow")  # Ends with the log, as no process will add to it.
    assert followed.exit_code == 0
    elastic.remove_delay()
    resumed = elastic.run("resume", elastic.job)
    assert resumed.exit_code == 0, resumed.output
    check_exact(resumed)


def test_stop_from_another_terminal(elastic: Elastic, slow_job: list[str]) -> None:
    with elastic.start("train", *slow_job) as running:
        running.wait_for_progress()
        with elastic.start("events", elastic.job, "--follow") as following:
            following.wait_for("TaskTaken")
            stopped = elastic.run("stop", elastic.job)
            assert stopped.exit_code == 0, stopped.output
            running.wait()
            running.wait_for(r"elasticdl resume ")
            assert following.wait() == 0, following.output
    events = elastic.run("events", elastic.job).output.splitlines()
    assert following.output.splitlines()[: len(events)] == events
    listed = elastic.run("jobs")
    assert re.search(rf"{elastic.job}.*stopped", listed.output)


def test_workers_come_and_go_while_the_job_runs(elastic: Elastic, slow_job: list[str]) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *slow_job, "--num_epochs=4", "--report", str(report)) as running:
        running.wait_for_progress()
        assert elastic.run("scale", elastic.job, "--workers=3").exit_code == 0
        running.wait_for("workers 3/3")
        assert elastic.run("scale", elastic.job, "--workers=1").exit_code == 0
        running.wait_for("workers 1/1")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    assert facts["audit"]["repaired"] == 0


def test_two_jobs_at_once_do_not_notice_each_other(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    flags = ["--model_def=model.py", "--training_data=data", "--num_workers=1"]
    reports = [elastic.folder / f"report-{number}.json" for number in range(2)]
    with (
        elastic.start("train", *flags, "--report", str(reports[0])) as first,
        elastic.start("train", *flags, "--report", str(reports[1])) as second,
    ):
        assert first.wait() == 0, first.output
        assert second.wait() == 0, second.output
    jobs = [json.loads(report.read_text()) for report in reports]
    assert all(job["audit"]["exact"] for job in jobs)
    assert jobs[0]["job"] != jobs[1]["job"]
