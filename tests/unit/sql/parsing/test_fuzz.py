"""Random statements are parsed, or refused with a place. ``statements_fuzz`` runs a million of them."""

from __future__ import annotations

from tests.unit.sql.parsing.statements_fuzz import fuzz


def test_random_statements_are_parsed_or_refused() -> None:
    found = fuzz(20_000, seed=0)
    assert found["parsed"] > 1_000
    assert found["refused"] > 10_000
