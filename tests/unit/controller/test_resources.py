"""Amounts, curves and ranges."""

from __future__ import annotations

from collections import Counter

import pytest

from elasticdl.controller.core import Curve, Group
from elasticdl.controller.core.resources import Units, count, fits, has_room, plus, share
from elasticdl.controller.sim.bound import packing_bound
from elasticdl.controller.sim.measures import jain


def test_amounts() -> None:
    room = {"cpu": 7, "gpu": 2}
    assert has_room({"cpu": 7}, room)
    assert not has_room({"cpu": 1, "disk": 1}, room)
    assert plus(room, {"cpu": 2, "disk": 1}, -2) == {"cpu": 3, "gpu": 2, "disk": -2}


def test_amounts_in_the_order_of_the_units() -> None:
    units = Units([{"cpu": 7, "gpu": 2}, {"disk": 1}])
    room = units.amounts({"gpu": 2, "cpu": 7})
    assert room == (7, 0, 2)
    assert fits(units.amounts({"cpu": 7}), room)
    assert not fits(units.amounts({"cpu": 1, "disk": 1}), room)
    assert fits(units.amounts({"gpu": 1}), (-1, 0, 2))
    assert count(units.amounts({"cpu": 3, "gpu": 1}), room) == 2
    assert count(units.amounts({"cpu": 3}), (-4, 0, 0)) == 0
    assert share(units.amounts({"cpu": 1, "gpu": 1}), room) == 0.5


def test_a_curve_is_straight_between_and_beyond_its_points() -> None:
    curve = Curve(((1, 10.0), (3, 20.0)))
    assert [curve.speed(workers) for workers in (0, 1, 2, 3, 5)] == [0.0, 10.0, 15.0, 20.0, 30.0]
    assert curve.gain(1) == 0.5
    assert Curve().speed(7) == 7.0


def test_what_is_no_curve_or_range() -> None:
    for points in (((0, 1.0),), ((2, 1.0), (1, 2.0))):
        with pytest.raises(ValueError, match="sorted"):
            Curve(points)
    with pytest.raises(ValueError, match="min 3 and max 2 are no range"):
        Group(request={}, min=3, max=2)


def test_the_index_of_jain() -> None:
    assert jain([3, 3, 3]) == 1.0
    assert jain([1, 0, 0, 0]) == 0.25


@pytest.mark.parametrize(("ps_pods", "workers"), [(0, 399), (200, 265)])
def test_the_packing_bound_of_the_nodes_of_edl(ps_pods: int, workers: int) -> None:
    """Three ps take the place of two trainers on a node with 17.62 CPU."""
    bound = packing_bound(Counter({16620: 46, 17620: 87}), 5000, 4000, ps_pods, False)
    assert workers == bound // 5000
