"""Everything that takes minutes and is kept in the cache folder: done before the tests, which have time limits."""

from __future__ import annotations

import shutil

from tests.cluster import build, kustomize, requirements, service_images
from tests.cluster.sites import cache_folder
from tests.contract.servers import s3

SERVICES = ("master", "ps", "worker")
FREE_BYTES_MIN = 20 << 30
"""What a machine with an empty cache needs: Go's cache, layers of images, and the images in the node."""


class LackingError(RuntimeError):
    """The machine lacks something, so the tests that need it skip."""


def prepare() -> None:
    """Compile node, kwok, kustomize and MinIO, and build the images of the services; quick when they are in the cache.

    Raises:
        LackingError: the machine lacks something.
        RuntimeError: a compiler or a build failed.
    """
    if lacking := requirements.missing(built=build.is_built()):
        raise LackingError(lacking)
    if lacking := requirements.missing_packages(requirements.IMAGE_PACKAGES):
        raise LackingError(lacking)
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if not build.is_built() and (free := shutil.disk_usage(folder).free) < FREE_BYTES_MIN:
        raise LackingError(f"{folder} has {free >> 30} GiB free. The test cluster needs {FREE_BYTES_MIN >> 30} GiB.")
    build.build()
    build.build_obedient()
    build.build_kwok()
    kustomize.provide()
    s3.provide()
    for service in SERVICES:
        print(f"Building the image of the {service}, which takes minutes the first time", flush=True)  # noqa: T201
        service_images.build_service_image(service)
