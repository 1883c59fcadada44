"""NumPy's files: ``.npy`` with one array, and ``.npz``, a zip file of them.

The format is that of ``numpy.lib.format``: a magic string, a version, the length of the header, and the header as a
Python dict of the type, the order of the elements and the shape.
"""

from __future__ import annotations

import ast
import operator
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, cast

import numpy as np

from elasticdl.shared.data.formats.array_file import ArrayColumn, ArrayFormat, StoredArray, columns_of
from elasticdl.shared.data.formats.data_format import extension_of
from elasticdl.shared.data.formats.gzip_content import content_size, open_content
from elasticdl.shared.data.formats.ranged_file import RangedFile
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

COLUMN = "values"
"""The column of an ``.npy`` file whose type has no fields."""
_MAGIC = b"\x93NUMPY"
_HEADER_BYTES_MAX = 1 << 20
_MEMBER_HEADER_BYTES = 30
"""Of a zip file's header of a member, before its name and extra fields, whose lengths are its last four bytes."""
_SAVE = "Write it with numpy.save, or copy it again."


def _npz_columns(store: ObjectStore, info: ObjectInfo) -> tuple[ArrayColumn, ...]:
    """The columns of an ``.npz`` file, in the order of its members."""
    try:
        with zipfile.ZipFile(cast("IO[bytes]", RangedFile(store, info))) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            arrays = [_member(store, info, archive, member) for member in members]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"{display(info.uri)} is not a complete .npz file: {error}",
            hint="Write it with numpy.savez, or copy it again.",
        ) from error
    if not arrays:
        raise UserError(f"{display(info.uri)} has no array", hint="Write it with numpy.savez.")
    return tuple(column for array in arrays for column in columns_of(array, array.name))


def _member(store: ObjectStore, info: ObjectInfo, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> StoredArray:
    """The array in a member of a zip file."""
    name = member.filename.removesuffix(".npy")
    where = f"{display(info.uri)}: array {name!r}"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(
            f"{where} is compressed with a method that can't be read",
            hint="Write the file with numpy.savez or numpy.savez_compressed.",
        )
    with archive.open(member) as stream:
        dtype, shape, offset = _header(stream, where)
    header = store.read(info.uri, member.header_offset, _MEMBER_HEADER_BYTES)
    begin = member.header_offset + _MEMBER_HEADER_BYTES + sum(struct.unpack("<HH", header[-4:]))
    is_deflated = member.compress_type == zipfile.ZIP_DEFLATED
    return StoredArray(
        uri=info.uri,
        name=name,
        dtype=dtype,
        shape=shape,
        offset=offset if is_deflated else begin + offset,
        size_bytes=None if is_deflated else begin + member.file_size,
        deflated_at=begin if is_deflated else None,
    )


def _header(stream: IO[bytes], where: str) -> tuple[np.dtype[np.generic], tuple[int, ...], int]:
    """Element type, shape and the number of bytes before the elements."""
    start = stream.read(8)
    if len(start) < 8 or not start.startswith(_MAGIC):
        raise UserError(f"{where} is not a NumPy array", hint=_SAVE)
    width = "<H" if start[6] == 1 else "<I"
    sizes = stream.read(struct.calcsize(width))
    try:
        (size,) = struct.unpack(width, sizes)
        text = stream.read(min(size, _HEADER_BYTES_MAX))
        facts = ast.literal_eval(text.decode("latin1" if start[6] < 3 else "utf-8").strip())
        dtype = np.lib.format.descr_to_dtype(facts["descr"])
        shape, is_fortran = tuple(map(operator.index, facts["shape"])), bool(facts["fortran_order"])
        if min(shape, default=0) < 0:
            raise ValueError("negative shape")
    except (struct.error, ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise UserError(f"{where} has a damaged header", hint=_SAVE) from error
    if dtype.hasobject:
        raise UserError(
            f"{where} has Python objects, which are not loaded, because that could run code",
            hint="Save an array of numbers or texts, for instance array.astype(str).",
        )
    if is_fortran and len(shape) > 1:
        raise UserError(
            f"{where} is stored column by column, so its records are not in one place",
            hint="Save it row by row: numpy.save(file, numpy.ascontiguousarray(array))",
        )
    return dtype, shape, len(start) + len(sizes) + size


class _NumPy(ArrayFormat):
    name = "numpy"
    title = "NumPy"
    extensions = ("npy", "npz")
    without_gzip: Mapping[str, str] = {"npz": "an .npz file"}

    def begins(self, start: bytes) -> bool:
        return start.startswith(_MAGIC)

    def columns(self, store: ObjectStore, info: ObjectInfo) -> tuple[ArrayColumn, ...]:
        if extension_of(info.uri) == "npz":
            return _npz_columns(store, info)
        with open_content(store, info.uri) as stream:
            dtype, shape, offset = _header(stream, display(info.uri))
        array = StoredArray(uri=info.uri, dtype=dtype, shape=shape, offset=offset, size_bytes=content_size(info))
        return columns_of(array, COLUMN)


FORMAT = _NumPy()
