"""The one place where loops are compiled, so that every kernel releases the GIL and is cached on disk.

Never `parallel=True` (a kernel runs inside a task that already owns one thread) and never `fastmath` (it would let
the compiler reorder sums, and bytes would then depend on how a loop was vectorized).
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """`function` as machine code: no GIL, no reordering of floating point operations."""
    return _compiled(function)


def inlined(function: Function) -> Function:
    """A compiled helper that kernels call in their inner loops."""
    return _compiled(function, inline="always")


def warm_up() -> None:
    """Have numba load all that it loads at the first call of anything compiled: a third of a second."""
    _nothing()


def _compiled(function: Function, **options: Any) -> Function:
    try:
        return cast(Function, numba.njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:
        # numba finds no folder it may write: a read-only install without a home. Compiling anew each time still works.
        return cast(Function, numba.njit(nogil=True, **options)(function))


@compiled
def _nothing() -> None:
    pass
