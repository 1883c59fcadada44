"""Links of the documents, which are written for GitHub, as the site needs them.

README.md and CHANGELOG.md are outside of docs/ and become the pages index.md and changelog.md. Other files of the
repository, such as examples, are not part of the site: links to them lead to the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

_LINK = re.compile(r"(?P<before>\]\()(?P<target>(?![a-z]+:|#)[^)#\s]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""File of the repository -> its page."""
FOLDERS = {"docs/adr": "adr/README.md"}
"""Folder that GitHub lists -> the page that lists it in the site."""


def rewrite_links(text: str, source: str, page: str, root: Path, repository: str) -> str:
    """The same document with links that work in the site.

    Args:
        text: Markdown.
        source: path of the document in the repository, such as ``docs/data.md``.
        page: path of its page in the site, such as ``data.md``.
        root: folder of the repository.
        repository: URL of the repository.

    Raises:
        ValueError: a link leads to a file that does not exist.
    """

    def rewritten(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        if not (root / path).exists():
            raise ValueError(f"{source}: the link to {link['target']} leads to no file. Correct its path.")
        return f"{link['before']}{_target(path, page, root, repository)}{link['anchor'] or ''}{link['after']}"

    return _LINK.sub(rewritten, text)


def _target(path: str, page: str, root: Path, repository: str) -> str:
    inside = OUTSIDE.get(path) or FOLDERS.get(path) or path.removeprefix("docs/")
    if inside != path:
        return posixpath.relpath(inside, posixpath.dirname(page) or ".")
    return f"{repository}/{'tree' if (root / path).is_dir() else 'blob'}/HEAD/{path}"
