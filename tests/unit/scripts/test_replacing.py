"""fit() of Keras is replaced when a script imports it, and the arguments of a script stay its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.options import split_script
from elasticdl.cli.script import replacing
from elasticdl.cli.script.launcher import former_jobs
from elasticdl.cli.script.places import LocalPlace
from elasticdl.cli.script.runner import place_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.script_options import ScriptFlags
from elasticdl.shared.kubernetes.options import KubernetesFlags

TRAINER = "class Trainer:\n    def fit(self, x, epochs=1):\n        return x * epochs\n"
UTILITY = "class Dataset:\n    pass\ndef made(data, size, seed=None):\n    return Dataset()\n"


def test_fit_is_replaced_once_its_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_trainer.py").write_text(TRAINER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(replacing, "TRAINERS", {"some_trainer": "Trainer"})
    monkeypatch.setattr(replacing, "UTILITIES", {"some_utility": "made"})
    (tmp_path / "some_utility.py").write_text(UTILITY)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def fit(model: Any, original: Any, args: Any, kwargs: Any) -> Any:
        return type(model).__name__, original(model, *args, **kwargs), kwargs

    replacing.replace_fit(fit)
    assert "some_trainer" not in sys.modules
    import some_trainer  # type: ignore[import-not-found]

    try:
        assert some_trainer.Trainer().fit(2, epochs=3) == ("Trainer", 6, {"epochs": 3})
        import some_utility  # type: ignore[import-not-found]

        assert vars(some_utility.made(1, size=3)) == {replacing.MADE_BY: ("made", {"data": 1, "size": 3, "seed": None})}
    finally:
        for name in ("some_trainer", "some_utility"):
            sys.modules.pop(name, None)


def test_what_follows_a_script_is_its_own() -> None:
    ours, own = split_script(["run", "--num_workers=2", "a.py", "--dry_run=true", "b.py"])
    assert (ours, own) == (["run", "--num_workers=2"], ["a.py", "--dry_run=true", "b.py"])
    assert split_script(["train", "a.py"]) == (["train", "a.py"], [])


def test_other_arguments_of_a_script_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = LocalPlace(tmp_path)
    (tmp_path / "job-1").mkdir()
    place.keep("job-1", {"script": "one.py", "arguments": ["--rows", "600"], "before": []})
    assert former_jobs(place, Path("one.py"), "job-1", ["--rows", "600"]) == ["job-1"]
    assert capsys.readouterr().err == ""
    assert former_jobs(place, Path("one.py"), "job-1", []) == ["job-1"]
    assert "Job job-1 began with other arguments of one.py, --rows 600." in capsys.readouterr().err


def test_only_a_job_of_the_script_continues_it(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    with pytest.raises(UserError, match=r"--resume=job-1: .* has no job with this id"):
        former_jobs(place, Path("/here/one.py"), "job-1", [])
    (tmp_path / "job-1").mkdir()
    place.keep("job-1", {"script": "/there/one.py", "before": ["job-0"]})
    assert former_jobs(place, Path("/here/one.py"), "job-1", []) == ["job-0", "job-1"]
    assert former_jobs(place, Path("/here/one.py"), "", []) == []
    with pytest.raises(UserError, match=r"--resume=job-1: that is a job of one\.py, not of other\.py"):
        former_jobs(place, Path("/there/other.py"), "job-1", [])


def test_the_command_that_continues_a_script_has_its_options(tmp_path: Path) -> None:
    flags = ScriptFlags(num_workers=3, use_async="false", run_dir=Path("elsewhere"))
    place = place_of(flags, KubernetesFlags(), tmp_path, as_fit=True)
    assert place.arguments == [f"--run_dir={tmp_path}", "--num_workers=3", "--use_async=false", "--progress=fit"]
    assert place_of(ScriptFlags(), KubernetesFlags(), tmp_path).arguments == [f"--run_dir={tmp_path}"]
