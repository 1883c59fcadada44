"""Jobs that pause when their workers change: the price of workers, where they stand, and what a pause costs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elasticdl.controller.core import Curve, Group, Job
from elasticdl.controller.sim.pollux.gangs import Gang, place
from elasticdl.controller.sim.pollux.prices import divide
from elasticdl.controller.sim.pollux.rescaling import PausePolicy, Rescalable, rescale

GAINS = st.lists(st.integers(1, 1000), min_size=1, max_size=4)


def concave(gains: list[int]) -> list[tuple[int, float]]:
    """Worths of 0, 1, 2 ... workers whose gains fall."""
    falling = sorted(gains, reverse=True)
    return [(size, float(sum(falling[:size]))) for size in range(len(falling) + 1)]


@given(st.lists(GAINS, min_size=1, max_size=4), st.integers(0, 12))
@example([[1, 2, 2, 2], [2, 2]], 4)  # Equal gains are steps of one worker each.
def test_worths_with_falling_gains_are_divided_best(jobs: list[list[int]], workers: int) -> None:
    worths = {f"job-{number}": concave(gains) for number, gains in enumerate(jobs)}
    sizes = divide(worths, workers)
    choices = [each for each in product(*worths.values()) if sum(size for size, _ in each) <= workers]
    assert sum(sizes.values()) <= workers
    assert sum(dict(worths[name])[size] for name, size in sizes.items()) == max(
        sum(worth for _, worth in each) for each in choices
    )


@given(
    st.lists(st.dictionaries(st.integers(1, 20), st.floats(-5, 5), min_size=1, max_size=5), max_size=5),
    st.integers(0, 40),
)
def test_any_worths_are_divided_within_the_workers(jobs: list[dict[int, float]], workers: int) -> None:
    worths = {f"job-{number}": [(0, 0.0), *sorted(worth.items())] for number, worth in enumerate(jobs)}
    sizes = divide(worths, workers)
    assert sum(sizes.values()) <= workers
    assert all(sizes[name] in dict(worth) and dict(worth)[sizes[name]] >= 0 for name, worth in worths.items())


def test_a_step_that_does_not_fit_leaves_its_workers_to_others() -> None:
    assert divide({"wide": [(0, 0.0), (8, 80.0)], "narrow": [(0, 0.0), (1, 1.0), (2, 1.5)]}, 6) == {
        "wide": 0,
        "narrow": 2,
    }


def test_gangs_stand_on_few_nodes() -> None:
    assert place({"a": 2, "b": 4, "c": 1, "d": 6}, {}, [4, 4, 4, 4]) == {
        "d": (0, 0, 0, 0, 1, 1),
        "b": (2, 2, 2, 2),
        "a": (1, 1),
        "c": (3,),
    }


def test_a_gang_of_the_same_size_keeps_its_nodes() -> None:
    assert place({"a": 2, "b": 3}, {"a": (0, 1), "b": (1,)}, [4, 4, 4]) == {"a": (0, 1), "b": (0, 0, 0)}


@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_all_gangs_have_room(wanted: list[int], rooms: list[int], data: st.DataObject) -> None:
    left, sizes = sum(rooms), {}
    for number, size in enumerate(wanted):
        sizes[f"job-{number}"] = min(size, left)
        left -= min(size, left)
    held = place({name: data.draw(st.integers(0, size)) for name, size in sizes.items()}, {}, rooms)
    placed = place(sizes, held, rooms)
    assert {name: len(gang) for name, gang in placed.items()} == {name: size for name, size in sizes.items() if size}
    on_nodes = [node for gang in placed.values() for node in gang]
    assert all(on_nodes.count(node) <= room for node, room in enumerate(rooms))


def job(name: str, *, pause_s: float = 30.0, speeds: tuple[float, ...] = (1.0, 1.9, 2.7, 3.4)) -> Job:
    """A job that may have 1 to 4 workers."""
    points = tuple(enumerate(speeds, start=1))
    no_ps = Group(request={}, min=0, max=0)
    return Job(
        name=name, master=Group(request={}), ps=no_ps, worker=workers_to(4), curve=Curve(points), pause_s=pause_s
    )


def workers_to(most: int) -> Group:
    """Workers without a minimum."""
    return Group(request={}, min=0, max=most)


def sizes(*jobs: Rescalable, rooms: tuple[int, ...], now_s: float = 1000.0, horizon_s: float = 300.0) -> dict[str, int]:
    """How many workers each job gets."""
    gangs: dict[str, Gang] = rescale(jobs, rooms, now_s, PausePolicy(horizon_s=horizon_s))
    return {name: len(gang) for name, gang in gangs.items()}


def test_equal_jobs_share_the_workers() -> None:
    assert sizes(*(Rescalable(job=job(name)) for name in "abcd"), rooms=(4, 4)) == dict.fromkeys("abcd", 2)


def test_every_job_has_a_worker_before_one_has_many() -> None:
    assert sizes(*(Rescalable(job=job(name)) for name in "abcde"), rooms=(4, 1)) == dict.fromkeys("abcde", 1)


def test_a_job_that_had_much_goes_behind_a_new_one() -> None:
    old, new = Rescalable(job=job("old"), service_s=500_000.0), Rescalable(job=job("new"))
    assert sizes(old, new, rooms=(4,)) == {"old": 1, "new": 3}


def test_a_gain_that_does_not_win_back_the_pause_changes_nothing() -> None:
    slow = 1.0, 1.05
    held = Rescalable(job=job("a", speeds=slow), gang=(0,))
    assert sizes(held, rooms=(4,)) == {"a": 1}  # A pause of 30 s in 300 s costs more than 5 percent.
    cheap = Rescalable(job=job("a", speeds=slow, pause_s=4.0), gang=(0,))
    assert sizes(cheap, rooms=(4,)) == {"a": 2}
    assert sizes(held, rooms=(4,), horizon_s=3000.0) == {"a": 2}


def test_a_job_that_was_paused_often_is_left_alone() -> None:
    often = Rescalable(job=job("a"), gang=(0,), restarts=20)
    assert sizes(often, rooms=(2,)) == {"a": 1}
    assert sizes(often, rooms=(2,), now_s=10_000.0) == {"a": 2}


def test_numbers_that_would_be_divided_by_are_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        PausePolicy(horizon_s=0.0)
    job = Job(
        name="a", master=Group(request={}), ps=Group(request={}), worker=Group(request={}), curve=Curve(((1, 0.0),))
    )
    with pytest.raises(ValueError, match="job a says that one worker does nothing"):
        Rescalable(job=job)
