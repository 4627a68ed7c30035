"""LLVM's instructions for the sums of `reid_dist.kernels.vectors`.

A loop takes one element of each lane at a time; elements beyond its last run are added one by one, to lanes in memory.
LLVM cuts vectors into those of the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from llvmlite import ir

from reid_dist.kernels.instructions import ArrayOperand, Variable, loop, opaque, write_out

_FLOAT: Final = ir.FloatType()
_DOUBLE: Final = ir.DoubleType()
_I32: Final = ir.IntType(32)

Terms = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""Values of some sums, from the builder and one value of each row: vectors or numbers."""


class Arithmetic(NamedTuple):
    """Types of terms and of sums, and the builder's operations by name; a conversion that is not needed is None."""

    element: Any
    convert: str | None
    add: str
    returned: Any
    convert_back: str | None


DOUBLE: Final = Arithmetic(_DOUBLE, "fpext", "fadd", _DOUBLE, None)
SINGLE: Final = Arithmetic(_FLOAT, None, "fadd", _DOUBLE, "fpext")


def write_out_sums(
    function: Callable[..., object],
    result: Callable[..., Any],
    arithmetic: Arithmetic,
    terms: Terms,
    *,
    run: int,
    n_sums: int,
) -> None:
    """Give a function of rows its code: `n_sums` sums of `terms`, in runs of `run` elements.

    The rows are those of all arguments, in order: an array of two dimensions holds two.  `result` is as in `write_out`.
    """

    def code(builder: Any, *arrays: Any) -> Any:
        rows = []
        for array in arrays:
            *n, dim = array.shape
            rows += [array] if not n else [array, array._replace(data=array.address(builder, dim))]
        found = _Sums(builder, arithmetic, terms, rows, dim, run).write(n_sums)
        return found[0] if n_sums == 1 else tuple(found)

    write_out(function, result, code)


class _Sums:
    """Code of sums over rows of `dim` elements."""

    def __init__(
        self, builder: Any, arithmetic: Arithmetic, terms: Terms, rows: Sequence[ArrayOperand], dim: Any, run: int
    ) -> None:
        self._builder, self._arithmetic, self._terms = builder, arithmetic, terms
        self._rows, self._dim, self._run = rows, dim, run
        self._add = getattr(builder, arithmetic.add)
        self._lanes = run

    def write(self, n_sums: int) -> list[Any]:
        """Append the code; return the sums."""
        builder, dim, element = self._builder, self._dim, self._arithmetic.element
        zero = ir.Constant(ir.VectorType(element, self._lanes), None)
        sums = [Variable(builder, zero) for _ in range(n_sums)]
        run = dim.type(self._run)
        n_runs = builder.udiv(dim, run)
        whole = builder.mul(n_runs, run)
        with loop(builder, n_runs) as number:
            for total, term in zip(sums, self._terms_at(builder.mul(number, run), self._run), strict=True):
                total.set(self._add(total.get(), term))
        # A vector that is addressed by element stays in memory: these are others.
        ends = [Variable(builder, zero) for _ in range(n_sums)]
        with builder.if_then(builder.icmp_unsigned("!=", whole, dim), likely=False):
            for total, end in zip(sums, ends, strict=True):
                end.set(total.get())
            with loop(builder, builder.sub(dim, whole)) as number:
                lane = builder.and_(number, dim.type(self._lanes - 1))
                for end, term in zip(ends, self._terms_at(builder.add(whole, number), 1), strict=True):
                    lanes = ArrayOperand(opaque(builder, end.place), element, ())
                    of_lane = lanes.address(builder, lane)
                    builder.store(self._add(builder.load(of_lane, typ=element), term), of_lane)
            for total, end in zip(sums, ends, strict=True):
                total.set(end.get())
        return [self._folded(total.get()) for total in sums]

    def _terms_at(self, place: Any, n: int) -> Sequence[Any]:
        """Terms of `n` elements from a place on: vectors, or numbers for one."""
        return self._terms(self._builder, [self._loaded(row, place, n) for row in self._rows])

    def _loaded(self, row: ArrayOperand, place: Any, n: int) -> Any:
        """Some elements of a row, converted."""
        builder, stored, wanted = self._builder, row.element, self._arithmetic.element
        if n > 1:
            stored, wanted = ir.VectorType(stored, n), ir.VectorType(wanted, n)
        value = builder.load(row.address(builder, place), align=4, typ=stored)
        convert = self._arithmetic.convert
        return value if convert is None else getattr(builder, convert)(value, wanted)

    def _folded(self, lanes: Any) -> Any:
        n = self._lanes
        while n > 1:
            n //= 2
            lanes = self._add(self._chosen(lanes, range(n)), self._chosen(lanes, range(n, 2 * n)))
        total, convert = self._builder.extract_element(lanes, _I32(0)), self._arithmetic.convert_back
        return total if convert is None else getattr(self._builder, convert)(total, self._arithmetic.returned)

    def _chosen(self, lanes: Any, which: range) -> Any:
        """Some lanes of a vector."""
        places = ir.Constant(ir.VectorType(_I32, len(which)), list(which))
        return self._builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), places)
