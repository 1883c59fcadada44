"""Images in folders, see ``files_in_folders.py``. The model's feed decodes them."""

from __future__ import annotations

from elasticdl.shared.data.formats.files_in_folders import Content, FilesInFolders

_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM")


class _Image(Content):
    column = "image"
    type = "binary"

    def problem(self, content: bytes) -> str:
        """See ``Content``."""
        return "" if content.startswith(_BEGINNINGS) else "is not a JPEG, PNG, GIF or BMP image"

    def value(self, content: bytes) -> bytes:
        """See ``Content``."""
        return content


FORMAT = FilesInFolders("images", "images in folders", ("jpg", "jpeg", "png", "gif", "bmp"), _Image())
