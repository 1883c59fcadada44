"""Build the images of the services from ``deploy/images``, without a Docker engine and without a registry."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.sites import REPOSITORY, cache_folder

PACKAGES: Mapping[str, str] = {"buildah": "buildah", "debootstrap": "debootstrap"}
"""Program -> Debian package."""
BASE = "localhost/elasticdl-base:bookworm"
_BASE_CONTENTS = "--include=python3,python3-venv,ca-certificates"
_PIP_SETTINGS = [Path("/etc/pip.conf"), Path("/etc/ssl/certs")]
"""What pip needs on machines that reach packages in their own way; other machines have the second one only."""


def service_image(service: str) -> str:
    return f"localhost/elasticdl-{service}:test"


def build_service_image(service: str, archive: Path) -> None:
    """Build the image of a service and write it to a file, in the format of ``docker save``.

    The first build takes minutes: it installs Debian for the base image, and the service's dependencies. Later ones
    take the layers of both from the cache folder.

    Args:
        service: ``master``, ``ps`` or ``worker``.
        archive: The file to write.
    """
    image = service_image(service)
    _provide_base()
    before = _image_id(image)
    mounts = [f"--volume={path}:{path}:ro" for path in _PIP_SETTINGS if path.exists()]
    _buildah(
        *["bud", "--quiet", "--isolation=chroot", "--network=host", "--layers", *mounts],
        *[f"--build-arg=BASE={BASE}", f"--file=deploy/images/{service}.Dockerfile", f"--tag={image}", "."],
    )
    if before and before != _image_id(image):
        _buildah("rmi", before)
    archive.unlink(missing_ok=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    _buildah("push", "--quiet", image, f"docker-archive:{archive}:{image}")


def _provide_base() -> None:
    """Debian with Python, in place of an image that a registry would have."""
    if _image_id(BASE):
        return
    with tempfile.TemporaryDirectory(prefix="debian-", dir=_storage().parent) as folder:
        root = Path(folder) / "root"
        _run("debootstrap", "--variant=minbase", _BASE_CONTENTS, "bookworm", str(root))
        dockerfile = Path(folder) / "Dockerfile"
        dockerfile.write_text("FROM scratch\nCOPY . /\n")
        _buildah("bud", "--quiet", "--isolation=chroot", f"--file={dockerfile}", f"--tag={BASE}", str(root))


def _image_id(image: str) -> str:
    """The id of an image; empty when there is none."""
    return _buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={image}").strip()


def _storage() -> Path:
    """A storage of our own: images that the machine's user has built stay as they are."""
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "storage"


def _buildah(command: str, *arguments: str) -> str:
    storage = _storage()
    options = [f"--root={storage}", f"--runroot={storage.with_name('run')}", "--storage-driver=overlay"]
    return _run("buildah", *options, command, *arguments)


def _run(*command: str) -> str:
    """The output of a command.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
