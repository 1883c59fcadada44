"""Texts in folders, see ``files_in_folders.py``: what ``keras.utils.text_dataset_from_directory`` reads."""

from __future__ import annotations

from elasticdl.shared.data.formats.files_in_folders import Content, FilesInFolders


class _Text(Content):
    column = "text"
    type = "string"

    def problem(self, content: bytes) -> str:
        """See ``Content``."""
        try:
            content.decode()
        except UnicodeDecodeError as error:
            return f"is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
        return ""

    def value(self, content: bytes) -> str:
        """See ``Content``."""
        return content.decode()


FORMAT = FilesInFolders("texts", "texts in folders", ("txt",), _Text())
