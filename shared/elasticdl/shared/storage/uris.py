"""Names of objects: ``file:///folder/name``, ``s3://bucket/key``, ``memory://name``."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from urllib.parse import quote, unquote

from elasticdl.shared.errors import UserError

SCHEMES = ("file", "s3", "memory")


def scheme_of(uri: str) -> str:
    """``file``, ``s3`` or ``memory``."""
    scheme, separator, _ = uri.partition("://")
    if not separator or scheme not in SCHEMES:
        raise UserError(
            f"{uri!r} has no supported scheme", hint="Use a local path, file:///path or s3://bucket/key.", usage=True
        )
    return scheme


def to_uri(path: str | Path) -> str:
    """A bare local path becomes an absolute ``file://`` URI; a URI stays as it is.

    A trailing ``/`` is kept, and so is everything after the path's last ``/`` (glob characters too). ``~`` is expanded.

    Raises:
        UserError: the scheme is unknown, or the path is empty or not UTF-8.
    """
    text = str(path)
    if "://" in text:
        if scheme_of(text) != "file":
            return text
        text = unquote(text.removeprefix("file://"))
    if not text:
        raise UserError("the path is empty", usage=True)
    absolute = Path(text).expanduser().absolute()
    slash = "/" if text.endswith("/") and str(absolute) != "/" else ""
    return "file://" + _quoted(str(absolute)) + slash


@functools.lru_cache(maxsize=256)
def local_path(uri: str) -> Path:
    """The file behind a ``file://`` URI; remembered, because every task asks for that of its data."""
    if not uri.startswith("file:///"):
        raise UserError(f"{uri!r} is not a local file", hint="A file URI has three slashes: file:///folder/name.")
    return Path(unquote(uri.removeprefix("file://")))


def bucket_and_key(uri: str) -> tuple[str, str]:
    """Bucket and key of an ``s3://`` URI; the key may be empty."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket:
        raise UserError(f"{uri!r} has no bucket", hint="Use s3://bucket/key.", usage=True)
    return bucket, key


def join(prefix: str, *names: str) -> str:
    """``prefix`` and names with one ``/`` between each; names are taken literally (quoted under ``file://``)."""
    parts = [_quoted(name) for name in names] if prefix.startswith("file://") else list(names)
    return "/".join([prefix.rstrip("/"), *parts])


def _quoted(path: str) -> str:
    try:
        return quote(path)
    except UnicodeEncodeError as error:
        readable = os.fsencode(path).decode(errors="backslashreplace")
        raise UserError(
            f"the name of {readable} is not UTF-8", hint="Rename it: names of files and folders must be UTF-8."
        ) from error


def display(uri: str) -> str:
    """A URI for people to read: a local path if it is one."""
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
