"""The status of a job: its folded log, and what is known without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console

from elasticdl.cli.display.live import progress_line
from elasticdl.cli.display.output import print_table
from elasticdl.cli.jobs.handle import Condition
from elasticdl.cli.jobs.run_directory import INTERRUPTED
from elasticdl.master.core import State
from elasticdl.master.core.job.failure import Failure
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import NO_INSTANCE, JobId
from elasticdl.shared.pod_instances import pid_of
from elasticdl.shared.storage import display
from elasticdl.shared.words import count, size, time_of_day
from elasticdl.views.history import evaluation_rows, metrics_text, validation_warnings
from elasticdl.views.incidents import incident_lines, unreadable_lines
from elasticdl.views.progress import progress_snapshot
from elasticdl.views.report import state_facts
from elasticdl.views.statistics import staleness_facts, staleness_rows, table_rows, table_texts


def without_processes(state: State, condition: Condition) -> State:
    """The state of a job, without processes if its launcher is not running: its log may end before they did.

    A launcher that gives up says so in ``job.json``, or a master in its Kubernetes Job: the log may not be reachable.

    Args:
        state: folded from a log; it is not changed.
    """
    if not condition.is_ended:
        return state
    if not state.is_final and condition.state == JobState.FAILED.value:
        state = replace(state, job_state=JobState.FAILED, failure=state.failure or Failure(message=condition.message))
    return replace(
        state,
        job_state=state.job_state if state.is_final else JobState.STOPPED,
        stop_reason=state.stop_reason if state.is_final else condition.message or INTERRUPTED,
        pods={
            name: replace(pod, phase=PodPhase.EXITED, instance=NO_INSTANCE, pending="", slow=None)
            for name, pod in state.pods.items()
        },
        running_attempts={},
    )


def status_facts(job: JobId, condition: Condition, state: State) -> dict[str, Any]:
    """``status --json``. The process id of a pod that is not running is 0."""
    alive = condition.is_running
    name_of_state = condition.state if condition.is_ended and not state.is_final else state.job_state.value
    state = without_processes(state, condition)
    pods: dict[str, dict[str, Any]] = {
        name: {"service": name, "phase": "running" if alive else "exited", "pid": pid if alive else 0}
        for name, pid in condition.pids.items()
    }
    for name, pod in sorted(state.pods.items()):
        pods[name] = {
            "service": pod.service.value,
            "phase": pod.phase.value,
            "pending": pod.pending,
            "instance": pod.instance,
            "pid": pid_of(pod.instance),
            "slow": _slow_facts(pod),
        }
    return {
        "job": job,
        "alive": alive,
        "waiting": condition.waiting,
        **state_facts(state),
        "state": name_of_state,
        "pods": pods,
    }


def _slow_facts(pod: Pod) -> dict[str, Any] | None:
    """The batch on which a worker has made no progress for long; None if absent."""
    if pod.slow is None:
        return None
    return {"task": str(pod.slow.task), "batch": pod.slow.batch, "work": pod.slow.work, "since_s": pod.slow.since_s}


def slow_lines(state: State, now_s: float) -> list[str]:
    """A sentence for each worker that has made no progress for long; ``now_s``: seconds since 1970."""
    deadline_s = state.job.limits.batch_deadline_s
    limit = f"--batch_deadline_secs={deadline_s:g}" if deadline_s else "without a deadline"
    return [
        f"{name} makes no progress: it has been {pod.slow.work} since {time_of_day(pod.slow.since_s)} "
        f"({max(0.0, now_s - pod.slow.since_s):.0f} s, {limit})"
        for name, pod in sorted(state.pods.items())
        if pod.slow
    ]


def print_state(state: State, console: Console, now_s: float, *, evaluations: int = 0) -> None:
    """Print the status of a job; ``evaluations``: how many evaluations to show, latest last; 0: all."""
    if state.spec is None:
        console.print("The event log holds no job yet.")
        for line in unreadable_lines(state):
            console.print(line)
        return
    reason = f" ({state.stop_reason})" if state.stop_reason else ""
    console.print(f"{state.job.job}: {state.job_state.value}{reason}")
    if state.failure:
        console.print(f"failure: {state.failure.message}")
    console.print(progress_line(progress_snapshot(state, {}, now_s, 0.0)))
    _print_pods(state, console)
    for line in slow_lines(state, now_s):
        console.print(line)
    _print_evaluations(state, console, evaluations)
    for warning in validation_warnings(state):
        console.print(f"warning: {warning}")
    for name, text in staleness_rows(staleness_facts(state)):
        console.print(f"{name}: {text}")
    for name, text in table_texts(table_rows(state)):
        console.print(f"{name}: {text}")
    for ps, snapshot in sorted(state.snapshots.items()):
        taken = f"{time_of_day(snapshot.time_s)}, {size(snapshot.size_bytes)}"
        console.print(f"snapshot of {ps}: {taken}, {display(snapshot.manifest)}")
    for line in incident_lines(state):
        console.print(line)
    audit = state.closing.audit
    if audit:
        absorbed = f"{count(audit.batches, 'batch', 'batches')}, {count(audit.records, 'record')}"
        console.print(f"audit: {'exact' if audit.exact else 'not exact'}, {absorbed}")


def _print_evaluations(state: State, console: Console, limit: int) -> None:
    rows = evaluation_rows(state)
    shown = rows[-limit:] if limit else rows
    for row in shown:
        console.print(f"validation at step {row['step']}: {metrics_text(row['metrics'])}")
    every = len(rows) + state.forgotten_evaluations
    if len(shown) < every:
        console.print(f"The latest {len(shown)} of {every} evaluations. To show all: --evaluations=0")


def _print_pods(state: State, console: Console) -> None:
    rows = []
    for name, pod in sorted(state.pods.items()):
        tasks = [str(ref) for ref, holders in state.running_attempts.items() if pod.incarnation in holders]
        phase = f"pending: {pod.pending}" if pod.pending else pod.phase.value
        if pod.is_hosted and pod.has_process and state.ring.leader:
            phase += f" in {state.ring.leader}"
        rows.append((name, phase, pod.instance, pod.incarnation, str(pod.starts), ", ".join(tasks)))
    if rows:
        print_table(console, ("pod", "phase", "instance", "incarnation", "starts", "tasks"), rows)
