"""Which optional dependencies of this package a local job needs, and how to install those that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from elasticdl.shared.errors import UserError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "worker": ("cloudpickle", "keras", "numba", "tensorflow"),
    "ps": ("llvmlite", "numba"),
}
"""Modules that each extra installs."""


def check_extras(extras: Mapping[str, tuple[str, ...]] = EXTRAS) -> None:
    """Check that everything is installed that workers and parameter servers import. Imports none of it."""
    missing = {extra: [name for name in names if find_spec(name) is None] for extra, names in extras.items()}
    needed = [extra for extra, names in missing.items() if names]
    if not needed:
        return
    modules = sorted({name for names in missing.values() for name in names})
    raise UserError(
        f"not installed: {', '.join(modules)}. A job on this machine needs them for its workers and parameter servers",
        hint=f"Install them with: pip install 'elasticdl[{','.join(needed)}]'",
    )
