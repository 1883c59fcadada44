"""The closing report: what was learned, the proof that it is exact, and where the time went.

``--report FILE`` writes it as one JSON object with these keys; times are seconds, sizes bytes, unknown numbers null. A
job may have several runs, if it was resumed: "this run" is the last one, "all runs" leave out the time between them.

==========================  ==========================================================================================
``job`` ``state``           the job's id; ``succeeded``, ``failed`` or ``stopped``
``message``                 why it failed or was stopped, else empty
``seed``                    of shuffling and initial weights
``plan``                    ``fingerprint``; ``epochs`` as asked for, ``epochs_run`` up to where ``--max_step`` ends
                            them; over these ``tasks``, ``batches``, ``records``; ``validation_records``, 0 without
                            such data
``audit.exact``             every batch of every epoch was absorbed exactly once by every group, by the ledgers in the
                            final snapshots; false as long as that was not shown
``audit.batches``           batches that each group has absorbed, over all epochs
``audit.records``           records that each group has absorbed, over all epochs
``audit.groups``            how many ledgers were compared
``audit.repaired``          tasks that the first audit found missing; anything but 0 is a defect of ours
``audit.problems``          one sentence for each thing that is wrong
``snapshots.damaged``       for each damaged object of a snapshot: ps, snapshot, object, problem, and instead: the
                            snapshot that its ps went on from (empty: the audit found it, and another one was taken)
``metrics``                 the last word on the model
``metrics_from``            the data they are from: ``validation`` or, before any evaluation, ``training``
``metrics_best``            the best values that any model can reach there; empty unless the data's maker said so
``history.epochs``          for each epoch, from 1: epoch; batches and records whose loss and metrics are known, each
                            counted once, so at most the plan's (workers that are killed take with them what they knew
                            of the task in hand: the proof that nothing is missing is ``audit``); loss, the mean over
                            these records; other metrics, taken while the model was learning; validation, of the first
                            evaluation after the epoch, and validation_step, the step of the model that it is of (null:
                            none yet); seconds
``history.evaluations``     for each evaluation: evaluation, epoch, step, final, reason, metrics, seconds
``records_per_second``      of all runs: records, as in the history, by ``train_all_s``
``batches_computed``        batches computed by all attempts in this run; more than absorbed if some were repeated
``goodput``                 batches absorbed in this run / batches computed in it, at most 1; null before any.
                            A batch counts as absorbed once, and only if the least advanced group has it in the end:
                            what a ps had learned and lost with its death was not useful
``worker_seconds``          seconds of all wanted workers in this run, from its start to the end of training:
                            ``useful`` and ``recomputed`` work (in the proportion of goodput), ``stalled`` (there, but
                            without progress beyond the usual pace), ``starting`` (from the wish, or the death of the
                            former one, to the first batch)
``wall_s``                  of this run, from the command to the end; the sum of the next three, if they are known
``start_s``                 of this run, from the command to the first gradient that a ps was seen to have applied; a ps
                            tells of it once a second. Null: of none
``train_s``                 of this run, from there to the end of the last task; null: no task ended in it
``close_s``                 of this run, from there to the end: audit, evaluation and export, or the last snapshots
``train_all_s``             of all runs, from the beginning of the first task to the end of the last one
``seconds``                 of all runs, where the workers' time on finished tasks went, summed over workers: read,
                            feed, pull, compute, push, total
``services``                name -> ``cpu_s``, ``rss_max_bytes``, ``restarts`` (after a death; who is called back by
                            scaling is not restarted)
``resumes``                 how many times the job was resumed, as far as the log knows
``log.lost``                for each part of the log that was lost: ``resumed_s``, when the job went on without it,
                            ``after_s``, the last record before it (null: it began with the job), ``until_s``, how far
                            it reached (null: unknown), seconds since the epoch; ``records``, how many (null: unknown).
                            What was learned then is known, where the time went is not
``output`` ``run_dir``      where the exported model is, or empty; the job's folder
==========================  ==========================================================================================
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from elasticdl.cli.display.history import evaluation_rows, final_metrics, full_rows, metrics_text, read_history
from elasticdl.cli.display.incidents import damaged_rows, lost_rows, lost_text
from elasticdl.cli.display.progress_snapshot import records_of
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.local_job import Ending
from elasticdl.cli.local.processes import Usage
from elasticdl.master.core import State
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.storage import display
from elasticdl.zoo import best_reachable

Report = dict[str, Any]


def build(ending: Ending, run: RunDirectory, started_s: float, ended_s: float) -> Report:
    """The report as JSON values.

    Args:
        ending: how the launcher's run ended.
        run: the job's folder.
        started_s: when the command was given, seconds since the epoch.
        ended_s: when all was over.
    """
    state = ending.state
    spec, training = state.job, state.training
    metrics, metrics_from = final_metrics(state)
    train_all_s = max(0.0, state.trained_s - state.first_step_s) if state.first_step_s else 0.0
    # Heartbeats are up to a second old: what was absorbed was certainly computed.
    computed = max(ending.batches_computed, ending.batches_absorbed)
    return {
        "job": spec.job,
        "state": _state(ending),
        "message": message_of(ending),
        "seed": spec.plan.seed,
        "plan": {
            "fingerprint": spec.plan.fingerprint,
            "tasks": spec.plan.tasks,
            "batches": spec.plan.batches,
            "records": spec.plan.records,
            "epochs": spec.plan.epochs,
            "epochs_run": spec.plan.epochs_run,
            "validation_records": spec.validation.records if spec.validation else 0,
        },
        "audit": _audit(state),
        "snapshots": {"damaged": damaged_rows(state)},
        "metrics": metrics,
        "metrics_from": metrics_from,
        "metrics_best": _best(state) if metrics_from == "validation" else {},
        "history": {"epochs": full_rows(state, read_history(run.history)), "evaluations": evaluation_rows(state)},
        "records_per_second": round(records_of(state) / train_all_s, 1) if train_all_s else None,
        "batches_computed": computed,
        "goodput": round(ending.batches_absorbed / computed, 4) if computed else None,
        "worker_seconds": {part: round(seconds, 3) for part, seconds in ending.worker_seconds.items()},
        "wall_s": round(ended_s - started_s, 3),
        **_parts(ending, started_s, ended_s),
        "train_all_s": round(train_all_s, 3),
        "seconds": {part: round(seconds, 3) for part, seconds in sorted(training.statistics.seconds.items())}
        if training
        else {},
        "services": _services(ending.usage),
        "resumes": state.resumes,
        "log": {"lost": lost_rows(state)},
        "output": display(spec.output),
        "run_dir": str(run.path),
    }


def _parts(ending: Ending, started_s: float, ended_s: float) -> dict[str, float | None]:
    """The parts of a run, which begin where the one before ends."""
    first_s, trained_s = ending.first_gradient_s, ending.state.trained_s
    if trained_s <= started_s:  # No task has ended in this run.
        return {"start_s": round(first_s - started_s, 3) if first_s else None, "train_s": None, "close_s": None}
    if not first_s:
        return {"start_s": None, "train_s": None, "close_s": round(ended_s - trained_s, 3)}
    # A beat of the ps may come when the last task has ended.
    first_s = min(first_s, trained_s)
    start_s, until_s = round(first_s - started_s, 3), round(trained_s - started_s, 3)
    wall_s = round(ended_s - started_s, 3)
    return {
        "start_s": start_s,
        "train_s": round(until_s - start_s, 3),
        "close_s": round(wall_s - until_s, 3),
    }


def message_of(ending: Ending) -> str:
    """Why a job failed or was stopped; empty after success."""
    state = ending.state
    if ending.gave_up:
        return ending.gave_up
    if state.job_state is JobState.SUCCEEDED:
        return ""
    return state.failure.message if state.failure else state.stop_reason


def write(report: Report, file: Path) -> None:
    """Write the report as JSON.

    Raises:
        UserError: the file can't be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"the report can't be written to {file}: {error.strerror}") from error


def print_summary(report: Report, console: Console) -> None:
    """The report in a few lines for people."""
    console.print(Text(f"{report['job']}: {report['state']}", style="bold"))
    for name, text in _summary(report):
        console.print(Text.assemble((f"  {name:<19} ", "dim"), text), soft_wrap=True)


def _summary(report: Report) -> Iterator[tuple[str, str]]:
    seconds = report["seconds"]
    yield "audit", _audit_text(report)
    for lost in report["log"]["lost"]:
        yield "log", lost_text(lost)
    for row in report["snapshots"]["damaged"]:
        instead = f"; {row['ps']} went on from {row['instead']}" if row["instead"] else ""
        yield "snapshots", f"damaged: {row['object']} {row['problem']}{instead}"
    if report["metrics"]:
        yield report["metrics_from"], metrics_text(report["metrics"]) + _metrics_note(report)
    if report["metrics_best"]:
        yield "reachable", metrics_text(report["metrics_best"]) + " at best, by any model"
    if report["records_per_second"]:
        yield "speed", f"{report['records_per_second']:,.0f} records/s{_all_runs(report)}"
    yield "time", _time_text(report)
    if seconds.get("total"):
        yield "workers", _shares(seconds) + _all_runs(report)
    if report["goodput"] is not None:
        since = " since it was resumed" if report["resumes"] else ""
        yield "goodput", f"{report['goodput']:.1%} of {report['batches_computed']:,} batches computed{since} were new"
    if sum(report["worker_seconds"].values()):
        yield "their time", _worker_time(report["worker_seconds"])
    for name, usage in report["services"].items():
        restarts = f", restarted {usage['restarts']} times" if usage["restarts"] else ""
        yield name, f"{usage['cpu_s']:.1f} s of CPU, {usage['rss_max_bytes'] / 1e6:.0f} MB{restarts}"
    if report["output"] and report["state"] == JobState.SUCCEEDED.value:
        yield "model", f"{report['output']}/saved_model and {report['output']}/model.keras"
    yield "logs", f"{report['run_dir']}/logs"


def _state(ending: Ending) -> str:
    state = ending.state
    if ending.gave_up and not state.is_final:
        return JobState.STOPPED.value if ending.interrupted else JobState.FAILED.value
    return state.job_state.value


def _audit(state: State) -> dict[str, Any]:
    verdict = state.closing.audit
    return {
        "exact": verdict is not None and verdict.exact,
        "batches": verdict.batches if verdict else 0,
        "records": verdict.records if verdict else 0,
        "groups": verdict.groups if verdict else 0,
        "repaired": state.repaired,
        "problems": list(verdict.problems) if verdict else [],
    }


def _best(state: State) -> dict[str, float | None]:
    """What the validation data's maker noted about the best model that there can be."""
    validation = state.job.validation
    if validation is None:
        return {}
    return dict(best_reachable(Path(display(validation.sources[0].uri)).parent))


def _services(usage: Mapping[str, Usage]) -> dict[str, dict[str, float | int]]:
    services: dict[str, dict[str, float | int]] = {
        name: {
            "cpu_s": round(each.cpu_s, 2),
            "rss_max_bytes": each.rss_max_bytes,
            "restarts": max(0, each.starts - each.returns - 1),
        }
        for name, each in sorted(usage.items())
    }
    times = os.times()
    unit = 1 if sys.platform == "darwin" else 1024
    services["launcher"] = {
        "cpu_s": round(times.user + times.system, 2),
        "rss_max_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "restarts": 0,
    }
    return services


def _audit_text(report: Report) -> str:
    audit = report["audit"]
    if audit["exact"]:
        repaired = f"; {audit['repaired']} tasks had to be repaired" if audit["repaired"] else ""
        return (
            f"exact: each of {audit['groups']} groups absorbed {audit['batches']:,} batches, "
            f"{audit['records']:,} records, once{repaired}"
        )
    return "; ".join(audit["problems"]) or "not done: the job did not come to its end"


def _metrics_note(report: Report) -> str:
    if report["metrics_from"] != "training":
        return ""
    if report["plan"]["validation_records"]:
        return "  (training metrics: no evaluation had come to its end)"
    return "  (training metrics: there is no --validation_data)"


def _all_runs(report: Report) -> str:
    return "  (all runs)" if report["resumes"] else ""


def _time_text(report: Report) -> str:
    parts = []
    if report["start_s"] is not None:
        parts.append(f"{report['start_s']:.1f} s to the first gradient")
    if report["train_s"] is not None:
        parts.append(f"{report['train_s']:.1f} s of training")
    if report["close_s"] is not None:
        succeeded = report["state"] == JobState.SUCCEEDED.value
        parts.append(f"{report['close_s']:.1f} s of {'audit, evaluation and export' if succeeded else 'ending'}")
    since = " since it was resumed" if report["resumes"] else ""
    return f"{report['wall_s']:.1f} s{since}" + (f": {', '.join(parts)}" if parts else "")


def _worker_time(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    return "  ".join(f"{part} {value / total:.0%}" for part, value in seconds.items())


def _shares(seconds: Mapping[str, float]) -> str:
    total = seconds["total"]
    parts = sorted(((value, part) for part, value in seconds.items() if part != "total"), reverse=True)
    return "  ".join(f"{part} {value / total:.0%}" for value, part in parts)
