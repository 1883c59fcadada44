"""Flags of an earlier ElasticDL are refused with what to do in their place."""

from __future__ import annotations

import dataclasses

import pytest

from elasticdl.cli.former_flags import FORMER_FLAGS, refuse_former_flags
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.kubernetes.options import KubernetesFlags


@pytest.mark.parametrize("typed", ["--restart_policy=Never", "--restart_policy"])
def test_a_former_flag_is_refused_by_name(typed: str) -> None:
    with pytest.raises(UserError, match=r"(?s)--restart_policy is a flag of an earlier ElasticDL.*restarts") as caught:
        refuse_former_flags(["train", "--model_def=m.py", typed])
    assert caught.value.usage


def test_other_arguments_pass() -> None:
    refuse_former_flags(["train", "--model_def=aux_params", "restart_policy", "--envs=restart_policy=1"])


def test_no_flag_of_today_is_among_them() -> None:
    today = {field.name for owner in (TrainFlags, KubernetesFlags) for field in dataclasses.fields(owner)}
    assert today.isdisjoint(FORMER_FLAGS)
