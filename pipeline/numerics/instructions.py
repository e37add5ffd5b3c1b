"""Instructions that the compiler does not choose by itself, written in LLVM's intermediate language: it never
prefetches, and does not vectorize a loop whose result decides a branch. `compiled` loads this module with numba.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pipeline.numerics.compiled import LANES


def _prefetch(_typing: Any, array: Any, place: Any) -> Any:
    """Ask for the cache line where `array[place]` begins, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        pointer = _pointer(context, builder, signature, arguments, 1, ir.IntType(8))
        # For reading, into all levels of cache, as data.
        builder.call(fetch, [pointer, *(ir.Constant(number, value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, place), generate


def _relax(_typing: Any, lengths: Any, start: Any, end: Any, _weight: Any) -> Any:
    """Lower row `end` of `lengths` (n, LANES) to row `start` plus `weight` where that is less; return whether any entry
    was."""

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


prefetch = intrinsic(_prefetch)
relax = intrinsic(_relax)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, which: int, to: Any) -> Any:
    """The address of the row of the first argument whose number is argument `which`."""
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
