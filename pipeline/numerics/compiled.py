"""The one place where loops are compiled, so that every kernel releases the GIL and is cached on disk.

Never `parallel=True` (a kernel runs inside a task that already owns one thread) and never `fastmath` (it would let
the compiler reorder sums, and bytes would then depend on how a loop was vectorised).
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """`function` as machine code: no GIL, no reordering of floating point operations."""
    return cast(Function, numba.njit(nogil=True, cache=True)(function))


def inlined(function: Function) -> Function:
    """A compiled helper that kernels call in their inner loops."""
    return cast(Function, numba.njit(nogil=True, cache=True, inline="always")(function))
