"""Jobs run on TensorFlow, whatever backend Keras is set to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.cli.job_log import SPEC

from elasticdl.cli.local.processes.imports import import_environment
from elasticdl.cli.submission.flag_items import parse_envs
from elasticdl.cli.submission.plan_text import start_lines
from elasticdl.shared.errors import UserError


@pytest.mark.parametrize("backend", ["torch", "jax", ""])
def test_the_processes_of_a_job_use_tensorflow(backend: str) -> None:
    base = {"KERAS_BACKEND": backend, "HOME": "/nowhere"} if backend else {"HOME": "/nowhere"}
    assert import_environment(base, processes=2, seed=1)["KERAS_BACKEND"] == "tensorflow"


def test_another_backend_for_workers_alone_is_refused() -> None:
    with pytest.raises(UserError, match="KERAS_BACKEND=jax can't be set"):
        parse_envs("A=1,KERAS_BACKEND=jax")
    assert parse_envs("KERAS_BACKEND=tensorflow") == {"KERAS_BACKEND": "tensorflow"}


def test_a_backend_without_effect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    says = "KERAS_BACKEND=jax has no effect on the job: it trains with Keras on TensorFlow."
    assert says in start_lines(replace(SPEC, workers=1))
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert says not in start_lines(replace(SPEC, workers=1))
