"""The page of the report: the fields of the object that ``elasticdl report --json`` prints."""

from __future__ import annotations

import re

from elasticdl.views import report
from website.markdown import table, unbroken

_BORDER = re.compile(r"^=+ +=+$", re.MULTILINE)


def page() -> str:
    """Markdown of the whole page, from the table in the docstring of ``elasticdl.views.report``."""
    introduction, rows, _ = _BORDER.split((report.__doc__ or "").replace("``", "`"))
    facts = introduction.strip().split("\n\n")[-1]
    return (
        "# Fields of the report\n\n"
        "`elasticdl report JOB --json` prints the report as one JSON object, and `elasticdl train` with "
        "`--report=FILE` writes it. In Python it is `Job(...).report`.\n\n"
        f"{facts}\n\n{table(('field', 'meaning'), fields(rows))}"
    )


def fields(rows: str) -> list[tuple[str, str]]:
    """(names, meaning) of each row of a table of reStructuredText with two columns."""
    found: list[tuple[str, str]] = []
    for line in rows.strip("\n").splitlines():
        names, _, meaning = line.partition("  ")
        if line.startswith("`"):
            found.append((unbroken(names.strip("`")), meaning.strip()))
        else:
            found[-1] = found[-1][0], f"{found[-1][1]} {line.strip()}"
    return found
