"""A folder of this machine whose files jobs read and write: there, or under the same names in object storage."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from elasticdl.shared.errors import PermanentError, file_errors
from elasticdl.shared.storage import join, open_store, scheme_of, to_uri


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder and its address.

    Attributes:
        folder: on this machine. It need not exist.
        uri: address of the folder itself, or of a place in object storage, to which files are copied.
    """

    folder: Path
    uri: str

    @classmethod
    def here(cls, folder: Path) -> Workspace:
        """One whose jobs run on this machine."""
        return cls(folder, to_uri(folder))

    @property
    def is_here(self) -> bool:
        """Whether jobs use the folder itself."""
        return scheme_of(self.uri) == "file"

    def create(self) -> None:
        """Make the folder."""
        with file_errors(f"{self.folder} can't be created", PermanentError):
            self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, *names: str) -> str:
        """Where jobs find a file or folder in it: a path, or an address in object storage."""
        return str(self.folder.joinpath(*names)) if self.is_here else join(self.uri, *names)

    def push(self, *names: str) -> str:
        """Copy a file, or the files of a folder, to object storage; returns ``place``."""
        if not self.is_here:
            start, store = self.folder.joinpath(*names), open_store(self.uri)
            files = [start] if start.is_file() else sorted(each for each in start.rglob("*") if each.is_file())
            for file in files:
                store.write(join(self.uri, *file.relative_to(self.folder).parts), file)
        return self.place(*names)

    def pull(self, *names: str, without: tuple[str, ...] = ()) -> Path:
        """Copy a folder from object storage; returns it on this machine.

        Args:
            without: names of folders in it that are left out.
        """
        target = self.folder.joinpath(*names)
        if not self.is_here:
            start, store = join(self.uri, *names).rstrip("/") + "/", open_store(self.uri)
            for found in store.list(start):
                name = found.uri.removeprefix(start)
                if name.partition("/")[0] not in without:
                    self._fetch(found.uri, target / name)
        return target

    def remove(self) -> None:
        """Delete everything, here and in object storage."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if not self.is_here:
            store = open_store(self.uri)
            for found in list(store.list(self.uri.rstrip("/") + "/")):
                store.delete(found.uri)

    def _fetch(self, uri: str, file: Path) -> None:
        with file_errors(f"{file} can't be written", PermanentError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with open_store(uri).open(uri) as source, file.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
