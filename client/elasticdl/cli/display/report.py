"""Prints the report of a job, and why it did not succeed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import error_console, print_error, wrapped
from elasticdl.master.core import State
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.model_file import WEIGHTS_ALONE
from elasticdl.shared.job.spec import ExportTables
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.words import count, duration, size, some_of, times, transfers
from elasticdl.views.history import metrics_text
from elasticdl.views.incidents import lost_text
from elasticdl.views.report import Report, message_of
from elasticdl.views.statistics import staleness_rows, table_texts

_SKIPPED_SHOWN = 4
_ENDED = (JobState.SUCCEEDED.value, JobState.FAILED.value, JobState.STOPPED.value)


def exported_text(output: str, export_tables: str) -> str:
    """Where an exported model is."""
    if export_tables == ExportTables.PARQUET.value:
        return f"{output}, with tables as Parquet files: elasticdl.layers.load_model() reads it"
    return f"{output}/saved_model and {output}/model.keras"


def print_summary(report: Report, console: Console) -> None:
    """Print a summary of the report."""
    console.print(Text(f"{report['job']}: {report['state']}", style="bold"))
    for name, text in summary_rows(report):
        label = f"  {name:<19} "
        console.print(Text.assemble((label, "dim"), wrapped(text, console, len(label))), soft_wrap=True)


def print_end(state: State, *, log: str, next_step: str) -> int:
    """Print on stderr why a job did not succeed and what to do.

    Args:
        log: where the log of the process is that caused the failure, if one did.

    Returns:
        The exit code of a command that has shown the job until its end.
    """
    if state.job_state is JobState.SUCCEEDED:
        return exit_codes.SUCCESS
    errors, run = error_console(), state.measured
    stopped = run is not None and run.is_interrupted and state.job_state is not JobState.FAILED
    if not stopped:
        print_error(message_of(state))
        if state.failure and state.failure.guilty:
            errors.print(f"Log of {state.failure.guilty}: {log}", soft_wrap=True)
    errors.print(next_step, soft_wrap=True)
    return exit_codes.INTERRUPTED if stopped else exit_codes.FAILURE


def summary_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Name and text of each line of the summary."""
    yield "audit", _audit_text(report)
    if report["initial_model"] and report["initial_model"]["note"]:
        yield "initial weights", report["initial_model"]["note"]
    for lost in report["log"]["lost"]:
        yield "log", lost_text(lost)
    if unreadable := report["log"]["unreadable"]["count"]:
        yield (
            "bus",
            f"{count(unreadable, 'message')} could not be read and {'was' if unreadable == 1 else 'were'} skipped",
        )
    for row in report["snapshots"]["damaged"]:
        instead = f"; {row['ps']} used {row['instead']} instead" if row["instead"] else ""
        yield "snapshots", f"damaged: {row['object']} {row['problem']}{instead}"
    if report["metrics"]:
        yield report["metrics_from"], metrics_text(report["metrics"]) + _metrics_note(report)
    if report["metrics_best"]:
        yield "best possible", metrics_text(report["metrics_best"])
    yield from (("warning", text) for text in report["warnings"])
    if best := report["best"]:
        exported = ", exported" if best["exported"] else ""
        yield "best", f"{best['metric']} {best['value']:.4f} at step {best['step']}, epoch {best['epoch']}{exported}"
    yield from table_texts(report["tables"])
    yield from _ring(report)
    yield from _performance(report)
    for name, usage in report["services"].items():
        restarts = f", restarted {times(usage['restarts'])}" if usage["restarts"] else ""
        # A process that lives for less than a second may end before its memory is measured.
        memory = f", {size(usage['rss_max_bytes'])}" if usage["rss_max_bytes"] else ""
        yield name, f"{usage['cpu_s']:.1f} s CPU{memory}{restarts}"
    if predictions := report["predictions"]:
        written = f"{count(predictions['files'], 'file')}, {count(predictions['records'], 'record')}"
        yield "predictions", f"{report['output']}: {written}, {predictions['format']}"
    elif report["output"] and report["state"] == JobState.SUCCEEDED.value:
        if report["export_weights"]:
            yield "weights", f"{report['output']}/{WEIGHTS_ALONE}"
        else:
            yield "model", exported_text(report["output"], report["export_tables"])


def _ring(report: Report) -> Iterator[tuple[str, str]]:
    if ring := report["ring"]:
        members = f", the last one of {', '.join(ring['members'])}" if ring["members"] else ""
        yield "ring", f"{count(ring['generations'], 'generation')}{members}"


def _performance(report: Report) -> Iterator[tuple[str, str]]:
    seconds = report["seconds"]
    if report["records_per_second"]:
        unit = "batches" if report["plan"]["batches"] == report["plan"]["records"] else "records"
        yield "speed", f"{report['records_per_second']:,.0f} {unit}/s{_all_runs(report)}"
    if report["wall_s"] is not None:
        yield "time", _time_text(report)
    if seconds.get("total"):
        yield "task time", _task_shares(seconds) + _all_runs(report)
    if report["data"].get("requests"):
        yield "data", transfers(**report["data"]) + _this_run(report)
    yield from staleness_rows(report["staleness"])
    if report["overflows"]:
        absorbed = count(report["overflows"], "batch", "batches")
        yield "overflows", f"{absorbed} absorbed without gradients, because these overflowed float16"
    if report["goodput"] is not None:
        computed = count(report["batches_computed"], "computed batch", "computed batches")
        yield "goodput", f"{report['goodput']:.1%} of {computed}{_this_run(report)} were useful"
    if JobKind(report["kind"]).trains and sum(report["worker_seconds"].values()):  # Only gradients are counted.
        yield "worker time", _shares(report["worker_seconds"]) + _this_run(report)


def _audit_text(report: Report) -> str:
    audit = report["audit"]
    kind = JobKind(report["kind"])
    if audit["exact"] and not kind.trains:
        return f"exact: {count(audit['records'], 'record')} {kind.done} exactly once"
    if audit["exact"]:
        repaired = f"; {count(audit['repaired'], 'task')} had to be repaired" if audit["repaired"] else ""
        differed = "".join(f"; {one}, and was copied again" for one in audit["replicas"])
        absorbed = count(audit["batches"], "batch", "batches")
        if audit["records"] != audit["batches"]:
            absorbed += f" ({count(audit['records'], 'record')})"
        exact = f"exact: {absorbed} absorbed exactly once, in {count(audit['groups'], 'ledger')}{repaired}{differed}"
        return exact + (f"; {_skipped_text(audit)}" if audit["skipped"] else "")
    if audit["problems"]:
        return "; ".join(audit["problems"])
    return (
        "not done, because the job did not finish" if report["state"] in _ENDED else "follows when training has ended"
    )


def _skipped_text(audit: Mapping[str, Any]) -> str:
    tasks = [f"task {each['task']} ({each['records']} of {each['source']})" for each in audit["skipped"]]
    return f"skipped {count(audit['skipped_records'], 'record')} of {some_of(tasks, _SKIPPED_SHOWN)}"


def _metrics_note(report: Report) -> str:
    if report["metrics_from"] != "training":
        return ""
    if report["plan"]["validation_records"]:
        return "  (training metrics: no evaluation finished)"
    return "  (training metrics: no --validation_data given)"


def _all_runs(report: Report) -> str:
    return "  (all runs)" if report["resumes"] else ""


def _this_run(report: Report) -> str:
    return " since the resume" if report["resumes"] else ""


def _time_text(report: Report) -> str:
    parts = []
    if report["start_s"] is not None:
        parts.append(f"start-up {duration(report['start_s'])}")
    if report["train_s"] is not None:
        parts.append(f"training {duration(report['train_s'])}")
    if report["close_s"] is not None:
        succeeded = report["state"] == JobState.SUCCEEDED.value
        parts.append(f"{'finishing' if succeeded else 'stopping'} {duration(report['close_s'])}")
    return f"{report['wall_s']:.1f} s{_this_run(report)}" + (f": {', '.join(parts)}" if parts else "")


def _shares(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    return "  ".join(f"{part} {value / total:.0%}" for part, value in seconds.items())


def _task_shares(seconds: Mapping[str, float]) -> str:
    parts = sorted(((value, part) for part, value in seconds.items() if part != "total"), reverse=True)
    return "  ".join(f"{part} {value / seconds['total']:.0%}" for value, part in parts)
