"""Options that a ring of workers has no use for are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.script_options import ScriptFlags


def flags(**options: Any) -> TrainFlags:
    return TrainFlags(
        model_def="model.py", training_data="data.csv", distribution_strategy="AllreduceStrategy", **options
    )


@pytest.mark.parametrize("name", ["use_async", "max_staleness", "lr_staleness_modulation"])
def test_an_option_without_effect_is_refused_even_with_its_default_value(name: str) -> None:
    flags().check()
    with pytest.raises(UserError, match=f"--{name}"):
        flags().check_given({"distribution_strategy", name})


def test_what_is_not_given_is_not_refused() -> None:
    flags().check_given({"distribution_strategy", "num_workers"})
    flags(use_async="false").check_given({"distribution_strategy", "use_async"})


@pytest.mark.parametrize("platform", ["local", "kubernetes"])
def test_a_job_on_any_platform_may_have_spare_workers(platform: str) -> None:
    flags(spare_workers=1, platform=platform).check()


def test_parameter_servers_beside_a_ring_are_those_that_are_given() -> None:
    assert (flags().ps_pods, flags().ps, flags(num_workers=3).processes) == (0, 1, 3)
    both = flags(num_workers=3, num_ps_pods=2)
    both.check()
    assert (both.ps_pods, both.ps, both.processes) == (2, 3, 5)
    alone = TrainFlags(model_def="model.py", training_data="data.csv", num_workers=3)
    assert (alone.ps_pods, alone.ps, alone.processes) == (1, 1, 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"initial_model": "other"}, "--initial_model=other can't be combined with --num_ps_pods"),
        ({"platform": "kubernetes"}, "--platform=kubernetes can't be combined with --num_ps_pods"),
    ],
)
def test_what_a_ring_with_tables_can_not_do_is_refused(options: dict[str, Any], says: str) -> None:
    flags(**options).check()
    with pytest.raises(UserError, match=says):
        flags(num_ps_pods=1, **options).check()


def test_a_comparison_of_replicas_is_refused_without_a_ring() -> None:
    flags(replica_check_steps=5).check()
    with pytest.raises(UserError, match="--replica_check_steps needs --distribution_strategy=AllreduceStrategy"):
        TrainFlags(model_def="model.py", training_data="data.csv", replica_check_steps=5).check()


def test_sums_of_16_bits_are_refused_where_they_mean_nothing() -> None:
    flags(ring_precision="bfloat16").check()
    with pytest.raises(UserError, match="--ring_precision needs --distribution_strategy=AllreduceStrategy"):
        TrainFlags(model_def="model.py", training_data="data.csv", ring_precision="float16").check()
    with pytest.raises(UserError, match="--ring_precision=bfloat16 rounds sums"):
        flags(ring_precision="bfloat16", deterministic=True).check()


def test_scripts_have_the_options_of_rings() -> None:
    ScriptFlags(distribution_strategy="AllreduceStrategy", deterministic=True, replica_check_steps=5, spare_workers=1)
