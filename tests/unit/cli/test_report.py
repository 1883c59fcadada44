"""The final report and the history."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.cli.job_log import PLAN, PS, SPEC, Log, finish, half_done

from elasticdl.cli.display.report import print_summary
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.shared.messages import events
from elasticdl.shared.messages.measurements import ProcessMeasured, RunMeasured, TableCounted
from elasticdl.shared.names import PodName, Service
from elasticdl.views import report
from elasticdl.views.history import epoch_rows, history_lines
from elasticdl.views.incidents import incident_lines
from elasticdl.views.statistics import staleness_facts, staleness_rows, table_texts


@pytest.fixture
def log() -> Log:
    return half_done()


def test_the_report_of_a_job_that_was_aborted(log: Log) -> None:
    log.add(
        Service.LAUNCHER,
        PodName("launcher"),
        ProcessMeasured(process=PS, cpu_s=1.5, rss_max_bytes=10, restarts=2),
        ProcessMeasured(process=PodName("worker-fork-server"), cpu_s=2.0, rss_max_bytes=10, restarts=0),
        ProcessMeasured(process=PodName("worker-0"), cpu_s=0.5, rss_max_bytes=0, restarts=0),
        RunMeasured(
            started_s=100.0,
            first_gradient_s=104.5,
            batches_absorbed=3,
            batches_computed=4,
            working_s=4.0,
            starting_s=4.0,
            ended_s=110.0,
            abort_reason="the disk is full",
        ),
    )
    facts = report.build(log.state)
    assert (facts["state"], facts["message"]) == ("failed", "the disk is full")
    assert facts["audit"] == {
        "exact": False, "batches": 0, "records": 0, "groups": 0, "repaired": 0, "skipped": [],
        "skipped_records": 0, "problems": [], "replicas": []
    }  # fmt: skip
    assert facts["services"]["ps-0"] == {"cpu_s": 1.5, "rss_max_bytes": 10, "restarts": 2}
    assert (facts["wall_s"], facts["start_s"], facts["train_s"], facts["close_s"]) == (10.0, 4.5, 3.5, 2.0)
    assert facts["plan"]["records"] == 40
    assert facts["goodput"] == 0.75
    assert (facts["metrics"], facts["metrics_from"]) == ({"loss": 0.5}, "training")
    of_all = {
        "batches": 2, "mean": 1.5, "p99": 3, "largest": 3, "exchange_s": 1.0, "exchange_share": 0.25
    }  # fmt: skip
    assert facts["staleness"] == {**of_all, "bound": None, "beyond_bound": 0, "workers": {"worker-0": of_all}}
    out = io.StringIO()
    print_summary(facts, Console(file=out, width=200))
    assert "training metrics: no --validation_data given" in out.getvalue()
    assert "10.0 s: start-up 4.5 s, training 3.5 s, stopping 2.0 s" in out.getvalue()
    assert "worker-fork-server  2.0 s CPU, 10 bytes" in out.getvalue()
    assert "worker-0            0.5 s CPU\n" in re.sub(" +\n", "\n", out.getvalue()), "its memory was not measured"
    assert "75.0% of 4 computed batches were useful" in out.getvalue()
    assert facts["overflows"] == 1
    assert "1 batch absorbed without gradients, because these overflowed float16" in out.getvalue()
    assert "mean 1.50 updates, 99th percentile 3, largest 3; pulls and pushes took 25%" in out.getvalue()
    assert "useful 38%  recomputed 12%  stalled 0%  starting 50%" in out.getvalue()


def test_the_report_counts_the_batches_that_were_later_than_the_bound(log: Log) -> None:
    state = replace(log.state, spec=replace(SPEC, max_staleness=2))
    facts = staleness_facts(state)
    assert (facts["bound"], facts["beyond_bound"]) == (2, 1)
    texts = [text for _, text in staleness_rows(facts)]
    assert texts[-1].startswith("1 batch was later than 2 updates")


def test_the_durations_of_a_resumed_job_are_those_of_the_last_run(log: Log) -> None:
    measured(log)
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobResumed(reason="resumed", continues=log.state.run))
    state = log.state
    assert report.build(state)["wall_s"] is None, "what was measured is of the run before"
    state.first_step_s, state.trained_s = 60.0, 150.0  # The pause is left out already.
    facts = measured(log, started_s=120.0, first_gradient_s=130.0)
    assert facts["start_s"] + facts["train_s"] + facts["close_s"] == facts["wall_s"] == 35.0
    assert facts["train_all_s"] == 90.0
    out = io.StringIO()
    print_summary(facts, Console(file=out, width=200))
    assert "35.0 s since the resume: start-up 10.0 s, training 20.0 s" in out.getvalue()
    assert "records/s  (all runs)" in out.getvalue()
    late = measured(log, started_s=120.0, first_gradient_s=151.0)
    assert [late[part] for part in ("start_s", "train_s", "close_s")] == [30.0, 0.0, 5.0]
    brief = measured(log, started_s=149.0, first_gradient_s=149.96)
    print_to = io.StringIO()
    print_summary(brief, Console(file=print_to, width=200))
    assert "6.0 s since the resume: start-up 1.0 s, training 0.040 s, stopping 5.0 s" in print_to.getvalue()
    nothing = measured(log, started_s=152.0, first_gradient_s=0.0)
    assert [nothing[part] for part in ("start_s", "train_s", "close_s")] == [None, None, None]


def test_a_report_says_where_max_step_ends_the_plan_and_that_no_evaluation_finished() -> None:
    plan = replace(PLAN, epochs=3, max_step=6)
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=replace(SPEC, plan=plan, validation=PLAN)))
    facts = measured(log)
    assert (facts["plan"]["epochs"], facts["plan"]["epochs_run"], facts["plan"]["batches"]) == (3, 2, 6)
    assert facts["plan"]["validation_records"] == 40
    facts["metrics"] = {"loss": 0.5}
    out = io.StringIO()
    print_summary(facts, Console(file=out, width=200))
    assert "training metrics: no evaluation finished" in out.getvalue()


def test_the_validation_of_an_epoch_is_that_of_the_model_at_its_end(log: Log) -> None:
    finish(log)
    for number, (epoch, step) in enumerate(((-1, 2), (0, 5), (0, 9)), start=1):
        evaluation = Evaluation(
            number=number, reason="", epoch=epoch, is_epoch_end=step == 5, final=False, started_s=1.0
        )
        evaluation.phase = EvaluationPhase.DONE
        evaluation.pins[PS], evaluation.results = step, {"loss": float(step)}
        log.state.evaluations.append(evaluation)
    (row,) = epoch_rows(log.state)
    assert (row["validation"], row["validation_step"]) == ({"loss": 5.0}, 5)


def measured(log: Log, started_s: float = 150.0, first_gradient_s: float = 0.0) -> report.Report:
    """The report of a run that the user ended at 155; ``first_gradient_s`` is 0 if nothing was computed in it."""
    batches = 1 if first_gradient_s else 0
    run = RunMeasured(
        started_s=started_s,
        first_gradient_s=first_gradient_s,
        batches_absorbed=batches,
        batches_computed=batches,
        ended_s=155.0,
        is_interrupted=True,
    )
    log.add(Service.LAUNCHER, PodName("launcher"), run)
    return report.build(log.state)


def test_a_job_that_runs_has_a_report_without_what_is_not_measured_yet(log: Log) -> None:
    facts = report.build(log.state)
    assert (facts["state"], facts["wall_s"], facts["goodput"], facts["services"]) == ("training", None, None, {})
    out = io.StringIO()
    print_summary(facts, Console(file=out, width=200))
    assert "digits-abcdef: training" in out.getvalue() and "records/s" in out.getvalue()
    assert "follows when training has ended" in out.getvalue()


def test_a_damaged_snapshot_is_reported_everywhere(log: Log) -> None:
    damaged = events.SnapshotDamaged(
        ps=PS, snapshot="file:///s/2/manifest", object="file:///s/2/dense", problem="is missing",
        instead="file:///s/1/manifest",
    )  # fmt: skip
    log.add(Service.PS, PS, damaged)
    line = "A snapshot of ps-0 is damaged: /s/2/dense is missing. ps-0 uses /s/1/manifest instead."
    assert log.shown[-1] == line
    assert list(incident_lines(log.state)) == [line]
    facts = measured(log)
    assert facts["snapshots"]["damaged"] == [
        {"ps": "ps-0", "snapshot": "/s/2/manifest", "object": "/s/2/dense", "problem": "is missing",
         "instead": "/s/1/manifest"}
    ]  # fmt: skip
    out = io.StringIO()
    print_summary(facts, Console(file=out, width=200))
    assert "damaged: /s/2/dense is missing; ps-0 used /s/1/manifest instead" in out.getvalue()


def test_the_figures_of_tables_are_the_sums_over_the_ps_that_have_the_model(log: Log) -> None:
    counts = {"rows": 1000, "candidates": 7, "admitted": 1500, "dropped": 20}
    log.add(Service.PS, PS, TableCounted(table="users", **counts))
    log.add(Service.PS, PodName("ps-7"), TableCounted(table="gone", **counts))
    expected = {"users": {"rows": 1000, "candidates": 7, "admitted": 1500, "expired": 500, "dropped_gradients": 20}}
    facts = report.build(log.state)
    assert facts["tables"] == expected
    (row,) = table_texts(facts["tables"])
    assert row == ("table users", "1,000 rows of 1,500 admitted, 500 expired; 7 candidates, 20 gradients were dropped")


@pytest.mark.parametrize(("restarts", "text"), [(0, ""), (1, ", restarted once"), (3, ", restarted 3 times")])
def test_restarts_are_counted_in_words(log: Log, restarts: int, text: str) -> None:
    facts = measured(log)
    facts["services"] = {"ps-0": {"cpu_s": 1.0, "rss_max_bytes": 0, "restarts": restarts}}
    out = io.StringIO()
    print_summary(facts, Console(file=out, width=200))
    (line,) = [line for line in out.getvalue().splitlines() if "s CPU" in line]
    assert line.split(maxsplit=1) == ["ps-0", f"1.0 s CPU{text}"]


def test_every_documented_key_is_in_the_report(log: Log) -> None:
    facts = measured(log)
    text = report.__doc__ or ""
    for key in facts:
        assert f"``{key}" in text, key


def test_the_history_file_has_a_line_per_epoch(log: Log) -> None:
    finish(log)
    (row,) = [json.loads(line) for line in history_lines(log.state).splitlines()]
    assert (row["epoch"], row["loss"], row["records"], row["validation"]) == (1, 0.75, 40, {})
    assert row["validation_step"] is None
    assert row == epoch_rows(log.state)[0]
