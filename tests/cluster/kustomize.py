"""The overlays of ``deploy/kustomize``: rendered, and applied to a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml
from kubernetes.dynamic import DynamicClient
from tests.cluster.sites import REPOSITORY, cache_folder

OVERLAYS = REPOSITORY / "deploy" / "kustomize" / "overlays"
VERSION = "v5.7.1"
BUILD_LIMIT_S = 600
RENDER_LIMIT_S = 60
_KUBECTL_VERSION_MIN = "v5"
"""Earlier versions of kustomize, in the kubectl of Debian 12 for instance, know no components."""


def provide() -> None:
    """Compile kustomize into the cache, once, unless kubectl contains it; takes a minute.

    Raises:
        RuntimeError: there is no Go, or it failed.
    """
    if _command():
        return
    if not shutil.which("go"):
        raise RuntimeError("Tests of deploy/kustomize need kubectl 1.27 or later, or Go, on PATH.")
    _cached().parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "install", f"sigs.k8s.io/kustomize/kustomize/v5@{VERSION}"],
        env=os.environ | {"GOBIN": str(_cached().parent), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Go could not compile kustomize: {done.stderr.strip()[-1000:]}")


def is_provided() -> bool:
    return bool(_command())


def render(overlay: str, namespace: str) -> list[dict[str, Any]]:
    """The objects of an overlay, in another namespace than the one that it names."""
    return _built({"namespace": namespace, "resources": [f"../{OVERLAYS.name}/{overlay}"]}, f"the overlay {overlay}")


def render_components(*names: str, namespace: str = "elasticdl") -> list[dict[str, Any]]:
    """The objects of components of ``deploy/kustomize``, one upon the other."""
    content = {"namespace": namespace, "components": [f"../{name}" for name in names]}
    return _built(content, f"the components {', '.join(names)}")


def _built(content: dict[str, Any], what: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=OVERLAYS.parent, prefix=".rendered-") as folder:
        Path(folder, "kustomization.yaml").write_text(json.dumps(content))
        done = subprocess.run(
            [*_command(), folder], capture_output=True, text=True, timeout=RENDER_LIMIT_S, check=False
        )
    if done.returncode:
        raise RuntimeError(f"kustomize could not render {what}: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))


def apply(cluster: DynamicClient, objects: list[dict[str, Any]], *, dry_run: bool = False) -> None:
    """Apply objects as ``kubectl apply --server-side`` does; raises what the API server refuses."""
    for each in objects:
        kind = cluster.resources.get(api_version=each["apiVersion"], kind=each["kind"])
        kind.server_side_apply(
            body=each,
            name=each["metadata"]["name"],
            namespace=each["metadata"].get("namespace"),
            field_manager="elasticdl-tests",
            **({"dry_run": "All"} if dry_run else {}),
        )


def _cached() -> Path:
    return cache_folder() / f"kustomize-{VERSION}" / "kustomize"


def _command() -> list[str]:
    """The command that renders a folder; empty when there is none yet."""
    if _cached().exists():
        return [str(_cached()), "build"]
    if kubectl := shutil.which("kubectl"):
        versions = subprocess.run(
            [kubectl, "version", "--client", "--output=json"], capture_output=True, text=True, check=False, timeout=30
        )
        if versions.returncode == 0 and json.loads(versions.stdout).get("kustomizeVersion", "") >= _KUBECTL_VERSION_MIN:
            return [kubectl, "kustomize"]
    return []
