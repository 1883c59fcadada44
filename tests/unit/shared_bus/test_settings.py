from __future__ import annotations

import dataclasses

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.process.settings import (
    MasterSettings,
    ProcessSettings,
    PsSettings,
    WorkerSettings,
    describe,
    from_environment,
    to_environment,
)

NEEDED = {
    "ELASTICDL_NATS_URL": "nats://t0ken@127.0.0.1:4222",
    "ELASTICDL_JOB": "mnist-1a2b3c",
    "ELASTICDL_POD": "ps-0",
}
EVERY = [MasterSettings, PsSettings, WorkerSettings]


@pytest.mark.parametrize("kind", EVERY)
def test_defaults(kind: type[ProcessSettings]) -> None:
    settings = from_environment(kind, {**NEEDED, "ELASTICDL_TOKEN": "", "PATH": "/bin"})
    assert (settings.job, settings.pod, settings.token, settings.log_level) == ("mnist-1a2b3c", "ps-0", "", "INFO")


@pytest.mark.parametrize("kind", EVERY)
def test_the_environment_carries_all_settings(kind: type[ProcessSettings]) -> None:
    settings = dataclasses.replace(from_environment(kind, NEEDED), token="s3cret", lease_s=2.5, log_level="DEBUG")
    assert from_environment(kind, to_environment(settings)) == settings


def test_numbers_are_read() -> None:
    settings = from_environment(PsSettings, {**NEEDED, "ELASTICDL_PORT": "4711", "ELASTICDL_LEASE_S": "0.5"})
    assert (settings.port, settings.lease_s, settings.bus.lease_s) == (4711, 0.5, 0.5)


def test_the_settings_of_the_bus_follow_from_those_of_the_process() -> None:
    settings = from_environment(
        PsSettings, {**NEEDED, "ELASTICDL_BROKER_RETRY_S": "42", "ELASTICDL_NATS_REPLICAS": "3"}
    )
    assert (settings.bus.connect_s, settings.bus.retry_s, settings.bus.replicas) == (15.0, 42.0, 3)


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_required_setting_is_named(name: str) -> None:
    with pytest.raises(UserError, match=name):
        from_environment(WorkerSettings, {key: value for key, value in NEEDED.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ELASTICDL_PORT", "http"),
        ("ELASTICDL_PORT", "-1"),
        ("ELASTICDL_MEMORY_BYTES_MAX", "-2"),
        ("ELASTICDL_NATS_REPLICAS", "0"),
        ("ELASTICDL_LEASE_S", "soon"),
        ("ELASTICDL_LOG_LEVEL", "LOUD"),
    ],
)
def test_bad_values_are_named(name: str, value: str) -> None:
    with pytest.raises(UserError, match=f"{name}=.*{value}"):
        from_environment(PsSettings, {**NEEDED, name: value})


def test_secrets_are_not_shown() -> None:
    settings = from_environment(WorkerSettings, {**NEEDED, "ELASTICDL_TOKEN": "s3cret"})
    shown = str(describe(settings))
    assert "s3cret" not in shown
    assert "t0ken" not in shown
    assert "mnist-1a2b3c" in shown
    assert "s3cret" not in repr(settings)
