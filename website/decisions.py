"""The titles of the architecture decisions; docs/adr/README.md lists them by subject."""

from __future__ import annotations

import re
from pathlib import Path

_TITLE = re.compile(r"^# (?P<number>\d+)\. (?P<title>.+)$", re.MULTILINE)


def titles(folder: Path) -> dict[str, str]:
    """File name -> number and title of each decision, in order."""
    found = {}
    for path in sorted(folder.glob("*.md")):
        if title := _TITLE.search(path.read_text()):
            found[path.name] = f"{title['number']}. {title['title']}"
    return found
