"""The list of the architecture decisions."""

from __future__ import annotations

import re
from pathlib import Path

from website.markdown import table

_TITLE = re.compile(r"^# (?P<number>\d+)\. (?P<title>.+)$", re.MULTILINE)
_STATUS = re.compile(r"^Status: (?P<status>.+?)\n\n", re.MULTILINE | re.DOTALL)


def titles(folder: Path) -> dict[str, str]:
    """File name -> number and title of each decision, in order."""
    found = {}
    for path in sorted(folder.glob("*.md")):
        if title := _TITLE.search(path.read_text()):
            found[path.name] = f"{title['number']}. {title['title']}"
    return found


def page(folder: Path) -> str:
    """Markdown of the page that lists all decisions."""
    rows = []
    for name, title in titles(folder).items():
        status = _STATUS.search((folder / name).read_text())
        rows.append((f"[{title}]({name})", status["status"] if status else ""))
    return (
        "# Architecture decisions\n\nEach record has the context, the decision, its consequences, and the rejected "
        f"alternatives with their numbers.\n\n{table(('decision', 'status'), rows)}"
    )
