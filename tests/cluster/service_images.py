"""The images of the services, built from ``deploy/images`` without a Docker engine and without a registry."""

from __future__ import annotations

import fcntl
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import host, requirements
from tests.cluster.readiness import CTR
from tests.cluster.sites import IMAGES, REPOSITORY, Site, cache_folder

BASE = "localhost/elasticdl-base:bookworm"
BUILD_LIMIT_S = 1500
_BASE_CONTENTS = "--include=python3,python3-venv,ca-certificates"
_NAME = "org.opencontainers.image.ref.name"
_PIP_SETTINGS = [Path("/etc/pip.conf"), Path("/etc/ssl/certs")]
"""What pip needs on machines that reach packages in their own way; other machines have the second one only."""


def service_image(service: str) -> str:
    return f"localhost/elasticdl-{service}:test"


def provide_service_image(site: Site, service: str) -> None:
    """Build the image of a service and make it known to the node.

    The first build takes minutes: it installs Debian for the base image, and the service's dependencies. Later ones
    take the layers of both from the cache folder, and only new layers are loaded into the node.

    Args:
        site: The node, which must run.
        service: ``master``, ``ps`` or ``worker``.
    """
    build_service_image(service)
    image = service_image(service)
    with _locked():
        layout = _storage().with_name(f"layout-{service}")
        _buildah("push", "--quiet", "--disable-compression", image, f"oci:{layout}:{image}")
        _remove_unused_blobs(layout)
        known = _run(*host.inside(site, *CTR, "content", "ls", "--quiet")).split()
        archive = f"{service}.tar"
        _write_archive(layout, site.folder / IMAGES.name / archive, without=frozenset(known))
        _run(*host.inside(site, *CTR, "images", "import", str(IMAGES / archive)))
        (site.folder / IMAGES.name / archive).unlink()


def is_built(service: str) -> bool:
    """Whether the image was built before, perhaps from earlier sources: then it takes seconds and not minutes."""
    return not requirements.missing_packages(requirements.IMAGE_PACKAGES) and bool(_image_id(service_image(service)))


def build_service_image(service: str) -> None:
    """Build the image of a service into the cache folder."""
    with _locked():
        _build(service, service_image(service))


def derived_image(folder: Path, image: str, code: str) -> str:
    """Build an image from a folder of ``elasticdl zoo init``, run Python code in it, and delete it.

    Args:
        folder: Written by ``elasticdl zoo init``.
        image: Name of the image.
        code: Runs as the image's user.

    Returns:
        What the code has printed.
    """
    mounts = [f"--volume={path}:{path}:ro" for path in _PIP_SETTINGS if path.exists()]
    with _locked():
        _buildah(
            *["bud", "--isolation=chroot", "--network=host", "--layers", "--force-rm", *mounts],
            *[f"--tag={image}", str(folder)],
        )
        container = _buildah("from", image).strip()
        try:
            return _buildah("run", "--isolation=chroot", container, "--", "/opt/elasticdl/start", "-c", code)
        finally:
            _buildah("rm", container)
            _buildah("rmi", image)


def _build(service: str, image: str) -> None:
    _provide_base()
    before = _image_id(image)
    mounts = [f"--volume={path}:{path}:ro" for path in _PIP_SETTINGS if path.exists()]
    _buildah(
        *["bud", "--isolation=chroot", "--network=host", "--layers", *mounts],
        *[f"--build-arg=BASE={BASE}", f"--file=deploy/images/{service}.Dockerfile", f"--tag={image}", "."],
    )
    if before and before != _image_id(image):
        _buildah("rmi", before)


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


def _write_archive(layout: Path, archive: Path, *, without: Set[str]) -> None:
    """Write an OCI image layout to a file, without the blobs that the node has already (digests)."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as tar:
        for path in sorted(path for path in layout.rglob("*") if path.is_file()):
            if f"sha256:{path.name}" not in without:
                tar.add(path, str(path.relative_to(layout)))


def _remove_unused_blobs(layout: Path) -> None:
    """Delete the earlier versions of the image in a layout, which have lost their name to the latest one."""
    blobs, index = layout / "blobs" / "sha256", layout / "index.json"
    content = json.loads(index.read_text())
    content["manifests"] = [entry for entry in content["manifests"] if _NAME in entry.get("annotations", ())]
    index.write_text(json.dumps(content))
    (manifest,) = content["manifests"]
    content = json.loads((blobs / manifest["digest"].removeprefix("sha256:")).read_text())
    used = {manifest["digest"], content["config"]["digest"], *(layer["digest"] for layer in content["layers"])}
    for blob in blobs.iterdir():
        if f"sha256:{blob.name}" not in used:
            blob.unlink()


def _image_id(image: str) -> str:
    """The id of an image; empty when there is none."""
    return _buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={image}").strip()


@contextmanager
def _locked() -> Iterator[None]:
    """Builds run one after the other, also those of several sessions of tests."""
    with _storage().with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
