"""The one place where loops are compiled: every kernel releases the GIL and is cached on disk.

Beside it, what compiled loops lack: a prefetch of memory ahead of its use, and eight numbers handled as one vector.

The one place where loops are compiled, so that every kernel releases the GIL and is cached on disk.

Never `parallel=True` (a kernel runs inside a task that already owns one thread) and never `fastmath` (it would let
the compiler reorder sums, and bytes would then depend on how a loop was vectorized).

What compiled loops lack: a line of memory asked for ahead of its use, and eight numbers handled as one.

The compiler does not vectorize a loop whose result decides a branch, and never prefetches by itself; here both are
spelled out in its own intermediate language, which it turns into whatever instructions the processor has.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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


# Doubles side by side: one line of the cache.
LANES = 8


def _prefetch(_typing: Any, array: Any, place: Any) -> Any:
    """Have the line of memory fetched in which `array[place]` begins, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        pointer = _pointer(context, builder, signature, arguments, 1, ir.IntType(8))
        # To be read, to be kept in every cache, data.
        builder.call(fetch, [pointer, *(ir.Constant(number, value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, place), generate


def _relax(_typing: Any, lengths: Any, start: Any, end: Any, _weight: Any) -> Any:
    """Shorten the row `end` of `lengths` (n, LANES) where the way over the row `start` and an edge of `weight` is
    shorter; whether any was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = ir.VectorType(ir.DoubleType(), LANES)
        from_start, at_end = (_pointer(context, builder, signature, arguments, i, row) for i in (1, 2))
        known = builder.load(at_end, align=8)
        offered = builder.fadd(builder.load(from_start, align=8), _repeated(builder, arguments[3], row))
        shorter = builder.fcmp_ordered("<", offered, known)
        bits = ir.IntType(LANES)
        improved = builder.icmp_unsigned("!=", builder.bitcast(shorter, bits), ir.Constant(bits, 0))
        with builder.if_then(improved):
            builder.store(builder.select(shorter, offered, known), at_end, align=8)
        return improved

    return types.boolean(lengths, start, end, types.float64), generate


prefetch = cast(Callable[..., None], intrinsic(_prefetch))
relax = cast(Callable[..., bool], intrinsic(_relax))


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, which: int, to: Any) -> Any:
    """The address at which the first argument's row begins that argument `which` numbers."""
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, arguments[0])
    place = context.cast(builder, arguments[which], signature.args[which], types.intp)
    places = [place, *[context.get_constant(types.intp, 0)] * (kind.ndim - 1)]
    address = cgutils.get_item_pointer(context, builder, kind, array, places, wraparound=False)
    return builder.bitcast(address, to.as_pointer())


def _repeated(builder: Any, value: Any, row: Any) -> Any:
    nothing, first = ir.Constant(row, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, value, first), nothing, places)
