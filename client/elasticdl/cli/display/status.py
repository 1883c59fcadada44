"""How a job stands: the folded log as lines and as JSON values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from elasticdl.cli.display.history import evaluation_rows, full_rows, metrics_text, read_history
from elasticdl.cli.display.incidents import damaged_rows, lost_rows, mishap_lines
from elasticdl.cli.display.live import progress_line
from elasticdl.cli.display.progress_snapshot import picture
from elasticdl.cli.display.records import clock
from elasticdl.cli.jobs.run_directory import INTERRUPTED, RunDirectory
from elasticdl.master.core import State
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.storage import display


def at_rest(state: State) -> State:
    """A job that nobody keeps any more, as its log alone can't know: no process is left, nothing is in anybody's hands.

    Args:
        state: folded from a log; it is not changed.
    """
    return replace(
        state,
        job_state=state.job_state if state.is_final else JobState.STOPPED,
        stop_reason=state.stop_reason if state.is_final else INTERRUPTED,
        pods={name: replace(pod, phase=PodPhase.EXITED) for name, pod in state.pods.items()},
        running_attempts={},
    )


def status_facts(run: RunDirectory, state: State, *, alive: bool) -> dict[str, Any]:
    """``status --json``: a pod that does not live has the process id 0.

    Args:
        run: the job's folder.
        state: folded from its log.
        alive: whether a launcher keeps the job.
    """
    record = run.read()
    name_of_state = state.job_state.value if alive or state.is_final else INTERRUPTED
    if not alive:
        state = at_rest(state)
    pods: dict[str, dict[str, Any]] = {
        name: {"service": name, "phase": "running" if alive else "exited", "pid": pid if alive else 0}
        for name, pid in record.pids.items()
    }
    for name, pod in sorted(state.pods.items()):
        lives = pod.phase is not PodPhase.EXITED
        pods[name] = {"service": pod.service.value, "phase": pod.phase.value, "pid": pod.pid if lives else 0}
    training = state.training
    return {
        "job": run.job,
        "state": name_of_state,
        "alive": alive,
        "message": state.failure.message if state.failure else state.stop_reason,
        "tasks": {"finished": len(training.complete) if training else 0, "all": state.plan.tasks if training else 0},
        "epochs": full_rows(state, read_history(run.history)),
        "evaluations": evaluation_rows(state),
        "pods": pods,
        "snapshots": {"damaged": damaged_rows(state)},
        "log": {"lost": lost_rows(state)},
    }


def print_state(state: State, console: Console, now_s: float) -> None:
    """How a job stands, for people."""
    if state.spec is None:
        console.print("the log holds no job yet")
        return
    console.print(
        f"{state.job.job}: {state.job_state.value}" + (f" ({state.stop_reason})" if state.stop_reason else "")
    )
    if state.failure:
        console.print(f"failure: {state.failure.message}")
    console.print(progress_line(picture(state, {}, now_s, 0.0)))
    _print_pods(state, console)
    for row in evaluation_rows(state):
        console.print(f"validation at step {row['step']}: {metrics_text(row['metrics'])}")
    for ps, snapshot in sorted(state.snapshots.items()):
        size_mb = snapshot.size_bytes / 1e6
        console.print(f"snapshot of {ps} at {clock(snapshot.time_s)}, {size_mb:.1f} MB: {display(snapshot.manifest)}")
    for line in mishap_lines(state):
        console.print(line)
    audit = state.closing.audit
    if audit:
        console.print(
            f"audit: {'exact' if audit.exact else 'not exact'}, {audit.batches:,} batches, {audit.records:,} records"
        )


def _print_pods(state: State, console: Console) -> None:
    table = Table()
    for column in ("pod", "phase", "pid", "incarnation", "starts", "has in hand"):
        table.add_column(column)
    for name, pod in sorted(state.pods.items()):
        held = [str(ref) for ref, holders in state.running_attempts.items() if pod.incarnation in holders]
        pid = "" if pod.phase is PodPhase.EXITED else str(pod.pid)
        table.add_row(name, pod.phase.value, pid, pod.incarnation, str(pod.starts), ", ".join(held))
    if state.pods:
        console.print(table)
