"""Container images of a single static program, as archives that containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_USER = "65532"
"""Not root, because namespaces may enforce the Pod Security Standard ``restricted``."""


def write_image(archive: Path, image: str, program: Path, entry_point: str = "") -> None:
    """Write an image whose only file is ``program``.

    Args:
        archive: The file to write, in the format of ``docker save``.
        image: The name of the image, such as ``localhost/nats:1``.
        program: A statically linked program.
        entry_point: What a container runs; by default the program.
    """
    layer = _tar({program.name: program.read_bytes()})
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": [entry_point or f"/{program.name}"], "User": _USER},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {"manifest.json": json.dumps(manifest).encode(), "config.json": json.dumps(config).encode()}
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(_tar(files | {"layer.tar": layer}))


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
