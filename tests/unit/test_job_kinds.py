"""What a kind of job is, stands in ``kinds.py``: other modules ask for a fact and compare no kinds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elasticdl.master.core.closing.decide import POLICIES
from elasticdl.shared.job.kind_options import COMMAND_FLAGS
from elasticdl.shared.job.kinds import JobKind

ROOT = Path(__file__).resolve().parents[2]
_COMPARISON = re.compile(r"(?:is|is not|==|!=|in|not in) \(?JobKind\.[A-Z]|(?:kind|\[\"kind\"\])(?:\.value)? [!=]= ")
OTHER_KINDS = ("shared/elasticdl/shared/job/kinds.py",)


def test_no_other_module_compares_kinds() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("client", "services", "shared")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "JobKind" in (text := path.read_text()) and str(path.relative_to(ROOT)) not in OTHER_KINDS
        for line in text.splitlines()
        if _COMPARISON.search(line.replace("self.kind", ""))  # Rules of the API server compare, too.
    ]
    assert found == []


@pytest.mark.parametrize("kind", JobKind)
def test_every_kind_has_options_and_closing_steps(kind: JobKind) -> None:
    assert POLICIES[kind].closing_steps
    assert COMMAND_FLAGS[kind].kind is kind


@pytest.mark.parametrize(
    ("kind", "trains", "suffix"),
    [(JobKind.TRAIN, True, ""), (JobKind.EVALUATE, False, "-evaluate"), (JobKind.PREDICT, False, "-predict")],
)
def test_a_kind_is_its_name_on_the_log(kind: JobKind, trains: bool, suffix: str) -> None:
    assert JobKind(kind.name.lower()) is kind
    assert (kind.trains, kind.name_suffix) == (trains, suffix)
