"""``elasticdl replay``: the state at any point of a log, decision by decision, compared, and continued in a model."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.cli.display.status import print_state
from elasticdl.cli.jobs.folded import recovered
from elasticdl.cli.jobs.handle import ReadableJob, read_bus, read_records
from elasticdl.master.core import State
from elasticdl.shared.bus.reading import present_records
from elasticdl.shared.errors import UserError
from elasticdl.shared.words import count, duration, time_of_day
from elasticdl.views.points import Point
from elasticdl.views.reading import Verification, fold, verify
from elasticdl.views.report import state_facts
from elasticdl.views.what_if.decisions import Decision, each_decision
from elasticdl.views.what_if.differences import differences
from elasticdl.views.what_if.simulating import Changes, Simulated, simulate


def replay(job: ReadableJob, point: Point | None, *, check: bool, as_json: bool = False) -> bool:
    """Print the master's state after a record.

    Args:
        point: the last record to apply; None: that of the log.
        check: start at the first record, re-run every decision and compare.

    Returns:
        Whether all decisions are the same again; True if ``check`` is not set.
    """
    console = plain_console()
    until = seq_of(job, point) if point else 0
    verified: Verification | None = None
    if check:
        verified = read_bus(job, lambda bus: verify(present_records(bus.log, until=until)))
        state, last = verified.state, verified.last_seq
    else:
        found = recovered(job, until)
        state, last = found.state, found.read_seq
    if point and last < until:
        raise _past_end(job, point, last)
    if as_json:
        print_json(console, _replay_facts(state, last, verified))
        return verified is None or not verified.differences
    console.print(f"State after #{last}, {time_of_day(state.now_s)}, term {state.term}:")
    print_state(state, console, state.now_s)
    for seq, decided in state.pending_commands:
        console.print(f"Decision #{seq} ({count(len(decided.commands), 'command')}) has no recorded outcome.")
    if verified is None:
        return True
    for difference in verified.differences:
        console.print(difference)
    differ = len(verified.differences)
    result = "all are the same" if not differ else f"{differ:,} differ"
    console.print(f"Re-ran {count(verified.decisions, 'decision')}: {result}.")
    return not verified.differences


def _replay_facts(state: State, last: int, verified: Verification | None) -> dict[str, Any]:
    """``replay --json``."""
    facts: dict[str, Any] = {
        "seq": last,
        "time_s": state.now_s,
        "term": state.term,
        "pending": [{"seq": seq, "commands": decided.commands} for seq, decided in state.pending_commands],
        **state_facts(state),
    }
    if verified is not None:
        facts["verified"] = {"decisions": verified.decisions, "differences": list(map(str, verified.differences))}
    return facts


def seq_of(job: ReadableJob, point: Point, flag: str = "until") -> int:
    """The number of the last record until a point. Raises ``UserError``: the log has no such record."""
    seq = point.seq or point.find(read_records(job), is_end=True)
    if not seq:
        raise UserError(f"--{flag}={point.text}: the event log of {job.job} has no such event")
    return seq


def _past_end(job: ReadableJob, point: Point, last: int, flag: str = "until") -> UserError:
    return UserError(f"--{flag}={point.text}: the event log of {job.job} ends at #{last}")


def step(job: ReadableJob, point: Point | None, *, as_json: bool = False) -> None:
    """Print the decisions of the masters one by one, with the state that each was taken in.

    On a terminal, each waits for the Enter key. Otherwise it is a line each.

    Args:
        point: the last record; None: that of the log.
    """
    console = plain_console()
    until = seq_of(job, point) if point else 0
    waits = console.is_terminal and sys.stdin.isatty() and not as_json
    shown: list[int] = []

    def show(decision: Decision) -> None:
        if as_json:
            print_json(console, asdict(decision), one_line=True)
            return
        if waits and shown:
            console.print("Enter: the next decision. q: quit.")
            if _input(console).strip().lower() == "q":
                raise _QuitError
        shown.append(decision.seq)
        reasons = ", ".join(decision.reasons)
        line = (
            f"#{decision.seq} {time_of_day(decision.time_s)} {decision.state} {decision.finished}/{decision.tasks} "
            f"workers={decision.workers} ps={decision.ps}: {'; '.join(decision.commands)}"
        )
        console.print(" ".join(f"{line} (reason: {reasons})".split()) if reasons else line)

    try:
        each_decision(read_records(job, until), show)
    except _QuitError:
        return
    if not shown and not as_json:
        console.print("The event log has no decision until there.")


class _QuitError(Exception):
    """The user quits."""


def _input(console: Console) -> str:
    """A line from the terminal. The end of input (Ctrl-D) quits."""
    try:
        return console.input()
    except EOFError:
        return "q"


def compare(job: ReadableJob, first: Point, second: Point | None, *, as_json: bool = False) -> None:
    """Print what changed in the state of a job between two points; ``second``: None: the end of the log."""
    console = plain_console()
    numbers = sorted((seq_of(job, first, "diff"), seq_of(job, second) if second else 0), key=lambda seq: seq or 1 << 62)
    before, after = (recovered(job, seq) for seq in numbers)
    for point, flag in ((first, "diff"), (second, "until")):
        if point and (point.seq or 0) > after.read_seq:
            raise _past_end(job, point, after.read_seq, flag)
    found = differences(_comparable(before.state), _comparable(after.state))
    if as_json:
        rows = [asdict(each) for each in found]
        print_json(console, {"from": before.read_seq, "to": after.read_seq, "differences": rows})
        return
    passed_s = after.state.now_s - before.state.now_s
    console.print(f"From #{before.read_seq} to #{after.read_seq}, {duration(passed_s)} later:")
    print_table(console, ("what", "before", "after"), [(each.where, each.before, each.after) for each in found])


def _comparable(state: State) -> dict[str, Any]:
    """The state of a job, by the names of its parts."""
    return {
        **(state_facts(state) if state.spec is not None else {}),
        "term": state.term,
        "workers": state.workers,
        "pods": {
            name: {
                "phase": pod.phase.value,
                "starts": pod.starts,
                "pending": pod.pending,
                "incarnation": pod.incarnation,
            }
            for name, pod in sorted(state.pods.items())
        },
        "running": {
            str(ref): ", ".join(holding.worker for holding in holders.values())
            for ref, holders in sorted(state.running_attempts.items(), key=lambda each: str(each[0]))
        },
        "snapshot_steps": {name: each.step for name, each in sorted(state.snapshots.items())},
        "pending_decisions": [f"#{seq}" for seq, _ in state.pending_commands],
    }


def continue_in_model(job: ReadableJob, point: Point | None, changes: Changes, *, as_json: bool = False) -> None:
    """Print how long a job would take from a point on, with and without changes."""
    console = plain_console()
    records = read_records(job)
    seq = seq_of(job, point) if point else len(records)
    if point and seq > len(records):
        raise _past_end(job, point, len(records))
    state = fold(records[:seq])
    if state.is_final:
        raise UserError(
            f"job {job.job} had ended by #{seq} ({state.job_state.value}), so nothing is left to simulate",
            hint="Give a point at which it was running: --until=POINT.",
        )
    unchanged = simulate(records, state, seq, Changes())
    changed = unchanged if changes.are_none else simulate(records, state, seq, changes)
    if as_json:
        facts = {"job": job.job, "seq": seq, "changes": asdict(changes)}
        print_json(console, {**facts, "unchanged": unchanged.facts(), "changed": changed.facts()})
        return
    console.print(
        f"From #{seq} on, {count(unchanged.batches, 'batch', 'batches')} at {1000 * unchanged.batch_s:.1f} ms for each "
        "and worker:"
    )
    rows = [_row("as it was", unchanged)]
    if not changes.are_none:
        rows.append(_row(_changes_text(changes), changed))
    if unchanged.really_s is not None:
        rows.append(("what happened", "", _seconds(unchanged.really_s), ""))
    print_table(console, ("simulated", "training", "until the end", "workers"), rows)
    console.print("A small model: workers at their measured speed, ps that are never the bottleneck.")


def _row(name: str, each: Simulated) -> tuple[str, str, str, str]:
    return name, _seconds(each.training_s), _seconds(each.seconds), str(each.workers)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _changes_text(changes: Changes) -> str:
    texts = [f"{changes.workers:+d} workers"] if changes.workers else []
    return ", ".join([*texts, *([] if changes.failures else ["no failures"])])
