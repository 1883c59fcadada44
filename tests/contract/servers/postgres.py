"""A real Postgres server for tests, where it is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.servers.s3 import end, free_port

USER, PASSWORD = "elasticdl", "elasticdl-test-password"
START_LIMIT_S = 60
_DEBIAN = Path("/usr/lib/postgresql")
_UNPRIVILEGED = ("postgres", "nobody")
"""Users that run the server if the tests run as root, which it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server with an empty database."""

    port: int
    log: Path

    @property
    def url(self) -> str:
        """With the user, without the password: that is in ``environment``."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def url_with_password(self) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"


def binaries() -> Path | None:
    """The folder of ``postgres`` and ``initdb``; None: they are not installed."""
    folders = [Path(found).parent for found in [shutil.which("postgres")] if found]
    folders += sorted(_DEBIAN.glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "initdb").exists() and (each / "postgres").exists()), None)


@contextmanager
def postgres_server(folder: Path) -> Iterator[PostgresServer | None]:
    """Run a server that keeps its data in ``folder``; None where none is installed."""
    where = binaries()
    user = _server_user()
    if where is None or user is False:
        yield None
        return
    data, log, port = folder / "data", folder / "server.log", free_port()
    secret = folder / "password"
    secret.write_text(PASSWORD)
    data.mkdir()
    _give(user, folder, data, secret)
    common: Any = {"user": user, "group": pwd.getpwnam(user).pw_gid} if isinstance(user, str) else {}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
    made = [str(where / "initdb"), "-D", str(data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}"]
    subprocess.run(
        [*made, "-E", "UTF8", "--no-sync"], check=True, env=environment, cwd=folder, capture_output=True, **common
    )
    options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
    options |= {"log_statement": "all", "log_destination": "stderr"}
    command = [str(where / "postgres"), "-D", str(data)]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output, **common)
    try:
        _wait_until_ready(process, log)
        yield PostgresServer(port=port, log=log)
    finally:
        end(process, 20)


def _server_user() -> str | bool | None:
    """The user that runs the server: None is this one; False: there is none that may."""
    if os.geteuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return next((name for name in _UNPRIVILEGED if name in known), False)


def _give(user: str | bool | None, *paths: Path) -> None:
    if isinstance(user, str):
        found = pwd.getpwnam(user)
        for path in paths:
            os.chown(path, found.pw_uid, found.pw_gid)
        for parent in paths[0].relative_to(tempfile.gettempdir()).parents[:-1]:
            closed = tempfile.gettempdir() / parent  # Temporary folders of root are closed to others.
            closed.chmod(closed.stat().st_mode | 0o711)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if b"ready to accept connections" in log.read_bytes():
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)  # polling another process, which has no event to wait for
    raise RuntimeError(f"the Postgres server did not start: {log.read_text(errors='replace')[-2000:]}")


def provide() -> None:
    """Say how to get a server: it is a package of the system, which tests must not install."""
    if binaries() is None:
        sys.exit("There is no Postgres. Install it: apt-get install postgresql, or brew install postgresql")


if __name__ == "__main__":
    provide()
