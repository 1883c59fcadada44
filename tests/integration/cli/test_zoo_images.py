"""``elasticdl zoo init``, ``build`` and ``push``, with a real buildah and a registry in this process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CALL_LIMIT_S = 240


class Registry(ThreadingHTTPServer):
    """The part of the OCI distribution protocol that a push needs, with contents in memory."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}

    @property
    def name(self) -> str:
        return f"localhost:{self.server_address[1]}"


class Exchange(BaseHTTPRequestHandler):
    """One connection: blobs are uploaded in one or more pieces, then the manifest that names them."""

    protocol_version = "HTTP/1.1"
    server: Registry

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/v2/" else 404)

    def do_HEAD(self) -> None:
        self.answer(200 if self.path.rpartition("/")[2] in self.server.blobs else 404)

    def do_POST(self) -> None:
        self.answer(202, Location=f"{self.path.split('?')[0]}session")

    def do_PATCH(self) -> None:
        self.server.blobs[self.path] = self.body()
        self.answer(202, Location=self.path)

    def do_PUT(self) -> None:
        content = self.body()
        if "/manifests/" in self.path:
            self.server.manifests[self.path.removeprefix("/v2/")] = content
        else:
            content = self.server.blobs.pop(self.path.split("?")[0], b"") + content
            self.server.blobs[f"sha256:{hashlib.sha256(content).hexdigest()}"] = content
        self.answer(201, **{"Docker-Content-Digest": f"sha256:{hashlib.sha256(content).hexdigest()}"})

    def body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": "0"} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests readable."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(tmp_path: Path, registry: Registry) -> Mapping[str, str]:
    """An environment in which buildah has a storage of its own, and needs no TLS for the registry."""
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n')
    registries = tmp_path / "registries.conf"
    registries.write_text(f'[[registry]]\nlocation = "{registry.name}"\ninsecure = true\n')
    return os.environ | {
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_REGISTRIES_CONF": str(registries),
    }


def elasticdl(settings: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "elasticdl.cli", "zoo", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=dict(settings), timeout=CALL_LIMIT_S
    )


def test_an_image_is_built_and_pushed(tmp_path: Path, registry: Registry, settings: Mapping[str, str]) -> None:
    if not shutil.which("buildah") or subprocess.run(["buildah", "info"], env=settings, capture_output=True).returncode:
        pytest.skip("This test needs a buildah that works.")
    folder, image = tmp_path / "zoo", f"{registry.name}/team/models:1"

    done = elasticdl(settings, "init", str(folder), "--base_image=scratch", "--example=deepfm")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "deepfm.py").is_file()
    # An image from nothing has no Python to install packages with; the tests of the cluster build from a worker's.
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /model_zoo/\n")

    done = elasticdl(settings, "push", image, "--tool=buildah")
    assert (done.returncode, f"There is no image {image}" in done.stderr) == (1, True)

    done = elasticdl(settings, "build", str(folder), f"--image={image}", "--tool=buildah", "--", "--label=team=a")
    assert done.returncode == 0, done.stderr
    assert f"Built {image} with buildah." in done.stdout
    assert "--model_def=/model_zoo/deepfm.py" in done.stdout

    done = elasticdl(settings, "push", image, "--tool=buildah")
    assert done.returncode == 0, done.stderr
    assert f"Pushed {image} with buildah." in done.stdout
    manifest = json.loads(registry.manifests["team/models/manifests/1"])
    assert {layer["digest"] for layer in manifest["layers"]} <= registry.blobs.keys()
    config = json.loads(registry.blobs[manifest["config"]["digest"]])
    assert config["config"]["Labels"]["team"] == "a"


def test_a_failed_build_names_the_tool(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text("#!/bin/sh\n[ $1 = version ] || { echo no such image >&2; exit 3; }\n")
    (programs / "docker").chmod(0o755)
    (tmp_path / "Dockerfile").write_text("FROM absent\n")

    done = elasticdl(os.environ | {"PATH": f"{programs}:/bin"}, "build", str(tmp_path), "--image=models")

    assert done.returncode == 1
    assert "no such image\nError: docker could not build models (exit code 3)" in done.stderr
