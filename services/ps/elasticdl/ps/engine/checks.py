"""What a push must satisfy before anything changes. All of it is the peer's fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels.index import first_outside, first_repeated
from elasticdl.ps.engine.kernels.slabs import all_finite
from elasticdl.shared.errors import ProtocolError


class NotFiniteError(ProtocolError):
    """A gradient or delta holds NaN or infinity: the push is answered NOT_FINITE and never absorbed."""


def check_array(name: str, array: NDArray[np.generic], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    """Raise ProtocolError unless ``array`` is C-contiguous and aligned with exactly this dtype and shape."""
    flags = array.flags
    if array.dtype != dtype or array.shape != shape or not (flags.c_contiguous and flags.aligned):
        wanted, got = f"{np.dtype(dtype).name}{list(shape)}", f"{array.dtype.name}{list(array.shape)}"
        raise ProtocolError(f"{name}: expected contiguous, aligned {wanted}, got {got}")


def check_finite(name: str, values: NDArray[np.float32]) -> None:
    """Raise NotFiniteError if the contiguous ``values`` hold NaN or infinity."""
    if not all_finite(values.reshape(-1)):
        raise NotFiniteError(f"{name}: {np.count_nonzero(~np.isfinite(values))} of {values.size} values are not finite")


def check_range(name: str, ids: NDArray[np.int64], bound: int) -> None:
    """Raise ProtocolError if an id is not within ``[0, bound)``."""
    position = first_outside(ids, bound)
    if position >= 0:
        raise ProtocolError(f"{name}: id {ids[position]} is not within [0, {bound})")


def check_unique(name: str, ids: NDArray[np.int64]) -> None:
    """Raise ProtocolError for a repeated id: one batch would update its row twice."""
    position = first_repeated(ids)
    if position >= 0:
        raise ProtocolError(f"{name}: row {ids[position]} occurs twice in one push")
