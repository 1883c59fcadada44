"""The pages about SQL, both of them sql.md: their tables are those of the code, and their statements parse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from website.statements import PAGE, tables, with_tables

from elasticdl.sql.attributes import check_attributes
from elasticdl.sql.parsing import parse
from elasticdl.sql.statements import Evaluate, Explain, Predict, Train

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = [DOCS / "sql.md", DOCS / "tutorials" / "sql.md"]
SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tables_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    assert text == with_tables(text), "python -m website.statements writes them"
    assert [name for name in tables() if f"<!-- table: {name} -->" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_the_statements_are_right(page: Path) -> None:
    blocks = SQL.findall(page.read_text())
    assert len(blocks) > 3
    for parsed in (each for block in blocks for each in parse(block)):
        if isinstance(parsed.statement, (Train, Predict, Evaluate, Explain)):
            assert check_attributes(parsed.statement).faults == (), parsed.text
