"""Rebalancing: which partitions move next, until every wanted ps has its share and no other ps has any."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.state import State
from elasticdl.shared.messages.commands import BeginMove, JobState
from elasticdl.shared.model.placement import PARTITIONS, ranges_of
from elasticdl.shared.names import PodName, Service, pod_name, pod_number

_MOVING_STATES = (JobState.STARTING, JobState.TRAINING)


def wants_move(state: State) -> bool:
    """Whether a move is in progress or could begin, so that evaluations have to wait."""
    return state.move is not None or bool(decide_begin(state))


def is_stored(state: State, ps: PodName) -> bool:
    """Whether an unwanted ps is not running, so that its partitions are read from its last snapshot.

    It has ended, or its pod has no place. That pod is deleted, so that it does not find one and train what is read.

    A job that is closing moves nothing any more, so there such a ps is started again. It is started again, too, if that
    snapshot is damaged: it can restore an older one.
    """
    if state.job_state not in _MOVING_STATES or ps in state.unreadable:
        return False
    pod = state.pods.get(ps)
    is_wanted = pod_number(ps) < state.ps
    is_away = pod is None or pod.phase is PodPhase.EXITED or pod.has_no_place
    return not is_wanted and ps in state.snapshots and is_away


def decide_begin(state: State) -> Decisions:
    """The beginning of a move, if one is needed and possible: from the fullest donor to the emptiest recipient."""
    if state.job_state not in _MOVING_STATES or state.job.has_ring:
        return []
    counts = _counts(state)
    if len(counts) == state.ps and max(counts.values()) - min(counts.values()) <= 1:
        return []
    running = {pod.name for pod in state.running(Service.PS)}
    recipients = [number for number in range(state.ps) if pod_name(Service.PS, number) in running]
    if not recipients:
        return []
    recipient = min(recipients, key=lambda number: counts[number])
    for donor in _donors(state, counts):
        name = pod_name(Service.PS, donor)
        stored = is_stored(state, name)
        if not stored and not _can_give(state, name):
            continue
        amount = _amount(state, counts, donor, recipient)
        if amount <= 0 or donor == recipient:
            continue
        theirs = [partition for partition, owner in enumerate(state.placement.owners) if owner == donor]
        command = BeginMove(
            move=state.placement.version + 1,
            donor=name,
            recipient=pod_name(Service.PS, recipient),
            partitions=ranges_of(theirs[-amount:]),
            stored=stored,
        )
        return [(command, f"scaled to {state.ps} ps: {amount} partitions from {name} to {command.recipient}")]
    return []


def _counts(state: State) -> dict[int, int]:
    return {**dict.fromkeys(range(state.ps), 0), **state.placement.sizes}


def _donors(state: State, counts: Mapping[int, int]) -> list[int]:
    """Unwanted ps first, then those with most partitions."""
    return sorted((number for number in counts if counts[number]), key=lambda n: (n < state.ps, -counts[n], n))


def _can_give(state: State, ps: PodName) -> bool:
    """Whether a running ps can give partitions away: only during training."""
    pod, training = state.pods.get(ps), state.training
    is_ready = pod is not None and pod.phase is PodPhase.RUNNING and pod.has_model
    return is_ready and state.job_state is JobState.TRAINING and training is not None and not training.is_complete


def _amount(state: State, counts: Mapping[int, int], donor: int, recipient: int) -> int:
    least, most = PARTITIONS // state.ps, -(-PARTITIONS // state.ps)
    if donor >= state.ps:
        return min(counts[donor], most - counts[recipient])
    if counts[donor] - counts[recipient] <= 1:
        return 0
    return max(1, min(counts[donor] - least, least - counts[recipient]))
