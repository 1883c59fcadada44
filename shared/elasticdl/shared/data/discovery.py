"""Finds the objects of a data set."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import DataObject, extension_of
from elasticdl.shared.data.formats.gzip_content import is_compressed, open_content
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import (
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    display,
    scheme_of,
    to_uri,
)
from elasticdl.shared.storage.file_store import repeated_folders
from elasticdl.shared.storage.uris import local_path
from elasticdl.shared.words import listed

_COMPRESSED = {"gzip", "bz2", "xz", "zst", "zip", "lz4"}
_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_PARTITION = re.compile(r"(?<=/)([^/=]+)=[^/]*(?=/)")
"""The name of a column in the name of a folder, as Hive and Spark write partitions."""
_SNIFF_BYTES = 4096


def split_paths(paths: str) -> list[str]:
    """Paths that are separated by commas; a comma in the name of an existing file or folder belongs to the name.

    Returns:
        At least one path.

    Raises:
        UserError: there is none.
    """
    if not listed(paths):
        raise UserError("the path of the data is empty", hint="Give a file, a folder or a glob.", usage=True)
    if "," not in paths or (scheme_of(to_uri(paths)) == "file" and local_path(to_uri(paths)).exists()):
        return [paths]
    return list(listed(paths))


def discover(paths: str, store: ObjectStore) -> list[DataObject]:
    """Find the objects of files, folders (with the folders in them) and globs.

    Files and folders whose name begins with ``.`` or ``_`` are left out of folders and globs. The format follows
    from the file's extension, or from its content if it has none.

    Args:
        paths: local paths or URIs, separated by commas; ``*``, ``?`` and ``[...]`` stay within one folder, ``**`` does
            not.

    Returns:
        The objects in the order of the paths, for each path in ascending order of their URIs; at least one, all of one
        format.

    Raises:
        UserError: there is no data file, another kind of file, a mix of formats, or a file is found twice.
    """
    objects: dict[str, DataObject] = {}
    given = split_paths(paths)
    if len({scheme_of(to_uri(path)) for path in given}) > 1:
        raise UserError(f"{paths} is in several stores", hint="Copy all data to one of them: elasticdl data put")
    for path in given:
        for item in _discover_one(path, store):
            if item.info.uri in objects:
                raise UserError(
                    f"{display(item.info.uri)} is given twice in {paths}", hint="Give each file once.", usage=True
                )
            objects[item.info.uri] = item
    first, *others = objects.values()
    for item in others:
        if (item.format, item.delimiter) != (first.format, first.delimiter):
            raise UserError(
                f"{paths} mixes formats: {display(first.info.uri)} is {first.name_of_format}, "
                f"{display(item.info.uri)} is {item.name_of_format}",
                hint="Give a glob that matches one format, such as 'folder/*.csv'.",
            )
    return FORMATS[first.format].sources(store, list(objects.values()))


def left_out(paths: str, uris: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """What a person may take for data that is not read, a sentence for each."""
    keys = dict.fromkeys(key for uri in uris for key in _PARTITION.findall(display(uri).rpartition("/")[0] + "/"))
    if unread := [key for key in keys if key not in columns]:
        several = len(unread) > 1
        yield (
            f"The folders {', '.join(f'{key}=...' for key in unread)} are not read as columns. If the model needs "
            f"{'these values' if several else 'this value'}, write {'them' if several else 'it'} into the files."
        )
    for path in split_paths(paths):
        if scheme_of(to_uri(path)) == "file":
            for link, folder in repeated_folders(local_path(to_uri(path))):
                yield f"{link} is skipped: {folder} is read already under another name."


def would_find(path: str, uri: str) -> bool:
    """Whether ``discover`` would take an object for data, if it existed."""
    data = to_uri(path)
    local = local_path(data) if scheme_of(data) == "file" else None
    if uri == data or (local and local.is_file()):
        return uri == data
    if _GLOB_CHARACTERS.search(path) and not (local and local.exists()):
        return _glob(data)[1](uri)
    folder = data.rstrip("/") + "/"
    return uri.startswith(folder) and not _hidden(uri[len(folder) :])


def _discover_one(path: str, store: ObjectStore) -> Iterator[DataObject]:
    found = sorted({info.uri: info for info in _listed(path, store)}.items())
    if scheme_of(to_uri(path)) == "file":
        _refuse_unreadable(local_path(to_uri(path)))
    if not found:
        raise UserError(f"there is no data file in {path}", hint="Give a file, a folder or a glob of data files.")
    for _, info in found:
        yield DataObject(info=info, format=_format_of(info, store))


def _listed(training_data: str, store: ObjectStore) -> Iterator[ObjectInfo]:
    uri = to_uri(training_data)
    try:
        yield store.info(uri)
        return
    except ObjectNotFoundError:
        pass
    if _GLOB_CHARACTERS.search(training_data) and not _has_any(store, uri):
        yield from _matching(uri, store)
        return
    if scheme_of(uri) == "file":
        _refuse_special(local_path(uri))
    folder = uri.rstrip("/") + "/"
    below = list(store.list(folder))
    if not below and not (scheme_of(uri) == "file" and local_path(uri).is_dir()):
        raise UserError(f"{training_data} does not exist", hint="Check the path given as data.", usage=True)
    yield from (info for info in below if not _hidden(info.uri[len(folder) :]))


def _refuse_unreadable(folder: Path) -> None:
    """Listings skip broken links and files that are not regular, so training would silently skip their data."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if not _hidden(str(path.relative_to(folder))):
                _refuse_special(path)


def _refuse_special(path: Path) -> None:
    """Refuse what is neither a regular file nor a folder, nor a link to one."""
    if path.is_symlink() and not path.exists():
        raise broken_link(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        kind = "a named pipe (FIFO)" if path.is_fifo() else "a socket or a device"
        raise UserError(
            f"{path} is {kind}, not a file: data is read several times",
            hint="Write the data to a file, and give that.",
        )


def broken_link(path: Path) -> UserError:
    """The error for a symbolic link that leads nowhere."""
    return UserError(
        f"{path} is a link to {path.readlink()}, which does not exist",
        hint="Fix the link, or remove it.",
    )


def _has_any(store: ObjectStore, prefix: str) -> bool:
    return next(iter(store.list(prefix.rstrip("/") + "/")), None) is not None


def _matching(uri: str, store: ObjectStore) -> Iterator[ObjectInfo]:
    """What a glob matches: objects, and everything in folders that match."""
    literal, matches = _glob(uri)
    candidates = _local(str(local_path(uri)), store) if scheme_of(uri) == "file" else store.list(literal)
    yield from (info for info in candidates if matches(info.uri))


def _glob(uri: str) -> tuple[str, Callable[[str], bool]]:
    """The text of a glob before its first special character, and whether the glob matches the URI of an object."""
    # A local path is quoted in its URI, so its pattern must be matched as a path.
    pattern = display(uri)
    literal = _GLOB_CHARACTERS.split(pattern, maxsplit=1)[0]
    folder = literal[: literal.rindex("/") + 1]
    whole = re.compile(_expression(pattern) + r"(?:/.*)?", re.DOTALL)

    def matches(found: str) -> bool:
        name = display(found)
        return whole.fullmatch(name) is not None and not _hidden(name[len(folder) :])

    return literal, matches


def _local(pattern: str, store: ObjectStore) -> Iterator[ObjectInfo]:
    """Candidates on disk; listing all files in the literal folder could walk a whole disk."""
    for path in glob.iglob(pattern, recursive=True):
        if Path(path).is_dir():
            yield from store.list(to_uri(path).rstrip("/") + "/")
        else:
            _refuse_special(Path(path))
            yield store.info(to_uri(path))


def _expression(pattern: str) -> str:
    """A glob as a regular expression."""
    parts = re.split(r"(\*\*/?|\*|\?|\[!?[^\]]+\])", pattern)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        special.get(part) or ("[" + part[1:].replace("!", "^", 1) if number % 2 else re.escape(part))
        for number, part in enumerate(parts)
    )


def _hidden(below: str) -> bool:
    return any(name.startswith((".", "_")) for name in below.split("/")) or below.endswith("/") or not below


def _format_of(info: ObjectInfo, store: ObjectStore) -> str:
    extension = extension_of(info.uri)
    if not extension:
        return _sniffed(info, store)
    for each in FORMATS.values():
        if extension not in each.extensions:
            continue
        if extension in each.without_gzip and is_compressed(info.uri):
            raise UserError(
                f"{display(info.uri)} is {each.without_gzip[extension]} in a gzip file",
                hint="Decompress it (gunzip); the format has its own compression.",
            )
        return each.name
    if extension in _COMPRESSED:
        raise UserError(
            f"{display(info.uri)} is compressed with a method that can't be read; gzip (.gz) can",
            hint="Decompress it first, or convert it to Parquet, which has its own compression.",
        )
    known = ", ".join(f".{extension}" for each in FORMATS.values() for extension in each.extensions)
    raise UserError(
        f"{display(info.uri)} is not a supported data file ({known})",
        hint="Move it out of the folder, or give a glob such as 'folder/*.csv'.",
    )


def _sniffed(info: ObjectInfo, store: ObjectStore) -> str:
    with open_content(store, info.uri) as stream:
        start = stream.read(_SNIFF_BYTES)
    for each in FORMATS.values():
        if each.begins(start):
            return each.name
    raise UserError(
        f"{display(info.uri)} has no extension, and its content is of no known format",
        hint="Give it the extension of its format: .csv, .jsonl, .tfrecord, .parquet or .npy.",
    )
