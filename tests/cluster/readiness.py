"""Whether a program of the node does its work, asked from inside the node."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.cluster.sites import CONTAINERD_SOCKET, NODE_NAME

START_LIMIT_S = 120.0
POLL_S = 0.1
"""Other processes have no event to wait for, so they are asked again and again."""
CTR = ["ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io"]


def wait_until(condition: Callable[[], bool], failure: Callable[[], str], limit_s: float = START_LIMIT_S) -> None:
    """Return when the condition holds.

    Raises:
        RuntimeError: with the text of ``failure``, when it does not hold within the limit.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(failure())
        time.sleep(POLL_S)


def is_running() -> bool:
    """Programs that retry by themselves need no check."""
    return True


def answers(url: str, *, certificates: Path | None = None) -> bool:
    """Whether a URL answers with success."""
    return _get(url, certificates) is not None


def containerd_is_ready() -> bool:
    return subprocess.run([*CTR, "version"], capture_output=True, check=False).returncode == 0


def node_is_ready(api: str, tokens: Path, certificates: Path) -> bool:
    """Whether the node's condition ``Ready`` is true."""
    token = tokens.read_text().partition(",")[0]
    answer = _get(f"{api}/api/v1/nodes/{NODE_NAME}", certificates, token)
    conditions = json.loads(answer)["status"].get("conditions", []) if answer else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _get(url: str, certificates: Path | None, token: str = "") -> bytes | None:
    """The body of a successful answer; None for every failure."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        context = ssl.create_default_context(cafile=str(certificates)) if certificates else None
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
        )
        with opener.open(request, timeout=2) as response:
            content: bytes = response.read()
            return content
    except OSError:  # the file of the certificates may not exist yet either
        return None
