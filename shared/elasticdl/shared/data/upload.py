"""Copies local data into object storage: ``elasticdl data put``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, join, to_uri


def put(
    source: str | Path,
    destination: str,
    store: ObjectStore,
    *,
    progress: Callable[[ObjectInfo], None] | None = None,
) -> list[ObjectInfo]:
    """Copy a file, or everything in a folder except files and folders that begin with ``.`` or ``_``.

    Args:
        destination: URI or local path. A file goes to that name, or into it when it ends with ``/``; a folder's content
            goes below it.
    """
    if not str(source):
        raise UserError("the path of the data is empty", hint="Give a file or a folder.", usage=True)
    source = Path(source).expanduser()
    target = to_uri(destination)
    if source.is_file():
        pairs = [(source, join(target, source.name) if target.endswith("/") else target)]
    else:
        below = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
        shown = [path for path in below if not any(part.startswith((".", "_")) for part in path.parts)]
        pairs = [(source / path, join(target, *path.parts)) for path in shown]
    if not pairs:
        raise UserError(f"there is nothing to copy at {source}", hint="Give a file or a folder that holds files.")
    written = []
    for path, uri in pairs:
        info = store.write(uri, path)
        if progress:
            progress(info)
        written.append(info)
    return written
