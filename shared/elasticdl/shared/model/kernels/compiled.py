"""How a function is compiled, and the one instruction that numba lacks: a prefetch of a cache line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

LINE_FLOATS = 16
"""float32 values in a cache line of 64 bytes."""

INT64S = types.Array(types.int64, 1, "C", readonly=True)
"""Signature of a 1-D int64 input, writable or not."""
FLOATS = types.Array(types.float32, 1, "C", readonly=True)
"""Signature of a 1-D float32 input, writable or not."""
INT64S_OUT = types.Array(types.int64, 1, "C")
"""Signature of a 1-D int64 array that the kernel writes."""
INT32S_OUT = types.Array(types.int32, 1, "C")
"""Signature of a 1-D int32 array that the kernel writes."""
FLOATS_OUT = types.Array(types.float32, 1, "C")
"""Signature of a 1-D float32 array that the kernel writes."""

DOUBLES = types.Array(types.float64, 1, "C", readonly=True)
"""Signature of a 1-D float64 input, writable or not."""
DOUBLES_OUT = types.Array(types.float64, 1, "C")
"""Signature of a 1-D float64 array that the kernel writes."""


def kernel(returns: types.Type, *arguments: types.Type) -> Callable[[Function], Function]:
    """Compile for one signature at import, from the cache when it is warm: no first call is slow."""
    decorate = numba.njit(returns(*arguments), nogil=True, cache=True, error_model="numpy")
    return cast(Callable[[Function], Function], decorate)


def inlined(function: Function) -> Function:
    """Compile as a part of the kernels that call it."""
    return cast(Function, numba.njit(function, nogil=True, error_model="numpy"))


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:  # noqa: ARG001 (numba demands these names)
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(view.data, [arguments[1]]), cgutils.voidptr_t)
        int32 = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, int32, int32, int32])
        function = cast(Any, cgutils).get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        read, keep_in_all_levels, data = int32(0), int32(3), int32(1)
        builder.call(function, [address, read, keep_in_all_levels, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


prefetch = cast(Callable[[Any, int], None], intrinsic(_prefetch))
"""``prefetch(array, position)``: start fetching the cache line of ``array[position]``; a hint, never a fault."""


@inlined
def prefetch_floats(array: Any, begin: int, size: int) -> None:
    """Start fetching the cache lines of ``array[begin : begin + size]``, float32."""
    for line in range(0, size, LINE_FLOATS):
        prefetch(array, begin + line)
