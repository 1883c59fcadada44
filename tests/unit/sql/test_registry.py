"""Versions of models: registered atomically, found by name, and never half."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.sql.registry import FinishedJob, ModelVersion, Registry, Training, TrainingRecord, check_name
from elasticdl.sql.statements import ModelName, Name

RECORD = TrainingRecord(
    model="pay",
    sql="SELECT 1 LABEL y INTO pay",
    label=("y",),
    rows=3,
    columns=(("y", "label", "regression"),),
    options={"num_epochs": "3"},
)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "models")


def trained(registry: Registry, job: str = "pay-1") -> ModelVersion:
    training = registry.begin("pay")
    training.write(RECORD)
    Path(training.export).mkdir()
    return registry.register(training, FinishedJob(job, {"val_loss": 0.5}))


def name(text: str, version: int | None = None) -> ModelName:
    return ModelName(Name(text), version)


def test_versions_count_up_and_the_newest_is_found(registry: Registry) -> None:
    assert registry.names() == []
    first, second = trained(registry), trained(registry, "pay-2")
    assert (str(first), str(second)) == ("pay@1", "pay@2")
    assert registry.versions("pay") == [first, second]
    assert registry.find(name("pay")) == second
    assert registry.find(name("pay", 1)) == first
    assert registry.training(first).read() == RECORD
    assert registry.names() == ["pay"]


def test_unknown_models_and_versions(registry: Registry) -> None:
    with pytest.raises(UserError, match="there is no model 'pai'") as caught:
        registry.find(name("pai"))
    assert caught.value.hint == "No model is registered yet."
    trained(registry)
    with pytest.raises(UserError, match="there is no model 'pai'") as caught:
        registry.find(name("pai"))
    assert caught.value.hint == "Did you mean 'pay'?"
    registry.begin("pays")
    with pytest.raises(UserError, match="there is no model 'pays'") as caught:
        registry.find(name("pays"))
    assert caught.value.hint == "Did you mean 'pay'?"
    with pytest.raises(UserError, match="the model pay has no version 7") as caught:
        registry.find(name("pay", 7))
    assert caught.value.hint == "Its versions: 1."


@pytest.mark.parametrize("text", ["", "..", "../x", "a/b", ".hidden", "a b", "a" * 121, "-x", "a\nb"])
def test_names_that_are_no_folders_are_refused(registry: Registry, text: str) -> None:
    with pytest.raises(UserError, match="can't be the name of a model"):
        check_name(text)
    with pytest.raises(UserError, match="there is no model"):
        registry.find(name(text))
    with pytest.raises(UserError, match="there is no model"):
        registry.drop(name(text))


@pytest.mark.parametrize("text", ["zoo.net", "my-model_2", "收入", "3d"])
def test_names_of_models(text: str) -> None:
    check_name(text)


def test_the_number_of_a_dropped_version_is_not_used_again(registry: Registry) -> None:
    first, second = trained(registry), trained(registry)
    assert registry.drop(name("pay", 2)) == 1
    assert registry.versions("pay") == [first]
    assert not registry.training(second).folder.exists()
    assert registry.training(first).folder.exists()
    assert str(trained(registry)) == "pay@3"


def test_a_model_is_dropped_as_a_whole(registry: Registry) -> None:
    trained(registry), trained(registry)
    assert registry.drop(name("pay")) == 2
    assert registry.names() == []
    assert list(registry.root.iterdir()) == []


def test_two_registrations_at_once_get_two_numbers(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    training = registry.begin("pay")
    training.write(RECORD)
    link = os.link

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        trained(registry, "other")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    version = registry.register(training, FinishedJob("pay-1", {}))
    assert version.version == 2
    assert [each.job for each in registry.versions("pay")] == ["other", "pay-1"]


def test_a_registration_that_is_killed_leaves_nothing_half(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    training = registry.begin("pay")
    training.write(RECORD)

    def killed(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            registry.register(training, FinishedJob("pay-1", {}))
    assert registry.versions("pay") == []
    assert list((registry.root / "pay" / "versions").iterdir()) == []
    assert registry.register(training, FinishedJob("pay-1", {})).version == 1


def test_a_training_that_was_resumed_is_registered_once(registry: Registry) -> None:
    training = registry.begin("pay")
    assert registry.complete("pay", lambda _: FinishedJob("pay-1", {})) == []
    training.write(RECORD)
    assert registry.complete("pay", lambda _: None) == [training]
    seen: list[Training] = []

    def finished(each: Training) -> FinishedJob:
        seen.append(each)
        return FinishedJob("pay-1", {"val_loss": 1.0})

    assert registry.complete("pay", finished) == []
    assert registry.complete("pay", finished) == []
    assert seen == [training]
    assert registry.find(name("pay")).job == "pay-1"


def test_a_training_that_came_to_nothing_is_deleted(registry: Registry) -> None:
    training = registry.begin("pay")
    registry.discard(training)
    assert registry.names() == []
    version, other = trained(registry), registry.begin("pay")
    registry.discard(other)
    assert registry.versions("pay") == [version]


def test_a_version_is_read_after_fields_were_added(registry: Registry) -> None:
    version = trained(registry)
    path = registry.root / "pay" / "versions" / "1.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"new": 1, "record": facts["record"] | {"new": 1}}))
    assert registry.find(name("pay")) == version


def test_a_damaged_version_is_named(registry: Registry) -> None:
    trained(registry)
    (registry.root / "pay" / "versions" / "1.json").write_text("{")
    with pytest.raises(UserError, match=r"versions/1.json is damaged"):
        registry.find(name("pay"))
