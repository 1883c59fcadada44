"""What an export with tables in Parquet consists of; see ADR 19."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticdl.shared.errors import UserError, check_format
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.storage import display, join

MARK = "export.json"
"""The file that makes a folder such an export; written last."""
MODEL, DENSE = "model.keras", "dense.npy"
"""The model without its tables, and its dense values: float32, all variables in the order of the signature."""
PART_BYTES = 32 << 20
"""Approximate size of the rows in a file. A process that writes or reads tables holds a few times as much."""
BITS_MAX = 16
_FORMAT = 1
_VERSION_DIGITS = 8
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    """One table of an export.

    Attributes:
        bits: the rows of an id are in the file whose position is the first ``bits`` bits of the id's hash.
        files: for each position the name of the file in the folder of the export; empty: no such row is trained.
    """

    name: str
    rows: int
    bits: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """An export with tables in Parquet.

    Attributes:
        version: name of the folder with its files.
        signature: the model; its seed and the initializers of its tables give the rows that are not in the files.
        tables: one for each table of the signature, in its order.
        adapted: names of the files with the states of adapted layers.
    """

    job: str
    version: str
    signature: ModelSignature
    tables: tuple[ExportedTable, ...]
    adapted: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The text of the file ``MARK``."""
        facts = {
            "format": _FORMAT,
            "job": self.job,
            "version": self.version,
            "model": join(self.version, MODEL),
            "dense": join(self.version, DENSE),
            "tables": [
                {"name": one.name, "rows": one.rows, "bits": one.bits, "files": list(one.files)} for one in self.tables
            ],
            "adapted": list(self.adapted),
            "signature": json.loads(self.signature.to_json()),
        }
        return json.dumps(facts, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, uri: str) -> ExportedModel:
        """Inverse of ``to_json``; ``uri`` is for the error's text."""
        try:
            facts = json.loads(text)
            check_format(display(uri), facts["format"], _FORMAT)
            tables = tuple(ExportedTable(**(one | {"files": tuple(one["files"])})) for one in facts["tables"])
            signature = ModelSignature.from_json(json.dumps(facts["signature"]))
            exported = cls(
                job=facts["job"],
                version=facts["version"],
                signature=signature,
                tables=tables,
                adapted=tuple(facts["adapted"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{display(uri)} does not describe an exported model", hint="Export it again.") from error
        exported._check(uri)
        return exported

    def _check(self, uri: str) -> None:
        names = [table.name for table in self.signature.tables]
        whole = all(0 <= one.bits <= BITS_MAX and len(one.files) == 1 << one.bits for one in self.tables)
        if [table.name for table in self.tables] != names or not whole:
            raise UserError(f"{display(uri)} does not list the tables of its model", hint="Export the model again.")
        for name in (*self.adapted, *(file for one in self.tables for file in one.files if file)):
            if not name.startswith(f"{self.version}/") or ".." in name.split("/"):
                raise UserError(f"{display(uri)} names {name!r}, which is outside of its folder")


def export_folder(uri: str) -> str:
    """URI of the folder of an export whose description has this URI; empty: it is no such file."""
    folder, _, name = uri.rpartition("/")
    return folder if name == MARK else ""


def version_of(manifests: Iterable[str]) -> str:
    """Name of the version of a model that these snapshots hold: the same snapshots have the same one."""
    digest = hashlib.sha256("\n".join(sorted(manifests)).encode()).hexdigest()
    return f"version-{digest[:_VERSION_DIGITS]}"


def is_version(name: str) -> bool:
    """Whether a folder of that name belongs to an export."""
    return re.fullmatch(rf"version-[0-9a-f]{{{_VERSION_DIGITS}}}", name) is not None


def folder_names(tables: Sequence[str]) -> list[str]:
    """Name of a folder for each table; characters that are not safe in a file's name are replaced."""
    names: list[str] = []
    for number, table in enumerate(tables):
        name = _UNSAFE.sub("-", table).strip("-.") or "table"
        names.append(f"{name}-{number}" if name in names else name)
    return names


def part_name(version: str, folder: str, position: int) -> str:
    """Name of a file of a table in the folder of the export."""
    return join(version, "tables", folder, f"part-{position:05d}.parquet")


def bits_for(size_bytes: int) -> int:
    """How many bits of the hash choose a file, so that a file has ``PART_BYTES`` at most."""
    return min(BITS_MAX, max(0, (max(0, size_bytes - 1) // PART_BYTES).bit_length()))
