"""Keyword arguments as flags, and errors of commands as exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.api.commands import split_secrets
from elasticdl.cli.flag_values import as_flags, with_choices
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.options import flags_of, types_of

KNOWN = flags_of(TrainFlags)


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        (
            {"num_workers": 3, "output": Path("a/b"), "job_name": "x"},
            ["--num_workers=3", "--output=a/b", "--job_name=x"],
        ),
        ({"seed": None, "eager": True, "dry_run": False}, ["--eager"]),
        ({"csv_header": False}, ["--no_csv_header"]),
        (
            {"model_params": {"units": 32, "name": "a", "shape": (1, 2)}},
            ["--model_params=units=32;name=a;shape=(1, 2)"],
        ),
        ({"column_types": {"id": "string", "zip": "int64"}}, ["--column_types=id=string,zip=int64"]),
        ({"fill_missing": {"id": -1}}, ["--fill_missing=id=-1"]),
        ({"columns": ["a", "b"]}, ["--columns=a,b"]),
    ],
)
def test_flags(values: dict[str, Any], flags: list[str]) -> None:
    assert as_flags(values, KNOWN, "train") == flags


def test_booleans_are_text_where_an_option_takes_true_or_false() -> None:
    values = {"use_async": False, "save_best": True, "eager": False}
    assert with_choices(values, types_of(TrainFlags)) == {**values, "use_async": "false"}
    assert with_choices({"use_async": True}, types_of(TrainFlags)) == {"use_async": "true"}


def test_values_that_may_have_credentials_are_apart() -> None:
    values = {"envs": {"A": 1, "TOKEN": "hunter2"}, "nats_url": "nats://user:hunter2@host", "seed": 5}
    assert split_secrets(values, KNOWN) == (
        {"seed": 5},
        {"envs": "A=1,TOKEN=hunter2", "nats_url": "nats://user:hunter2@host"},
    )
    assert split_secrets({"envs": None}, KNOWN) == ({}, {})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"train\(\) got an unexpected keyword argument 'num_epoch'.*'num_epochs'"):
        as_flags({"num_epoch": 1}, KNOWN, "train")
