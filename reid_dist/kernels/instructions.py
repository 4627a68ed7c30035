"""Functions of kernels whose code is written out in LLVM's instructions, in place of that which Numba compiles.

Each is also a Python function, which readers, type checkers and kernels without compilation use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class ArrayOperand(NamedTuple):
    """An array in C order: pointer to its first element, LLVM's type of its elements, and its shape as LLVM's values.

    Whether the pointer has a type of what it points to makes no difference: every use names that type.
    """

    data: Any
    element: Any
    shape: Sequence[Any]

    def address(self, builder: Any, place: Any) -> Any:
        """Pointer to an element, by its place among all."""
        return builder.gep(self.data, [place], source_etype=self.element)


def opaque(builder: Any, pointer: Any) -> Any:
    """A pointer without the type that llvmlite may give it, which refuses to store another one there."""
    from llvmlite import ir

    return builder.inttoptr(builder.ptrtoint(pointer, ir.IntType(64)), ir.PointerType())


def write_out(function: Callable[..., object], result: Callable[..., Any], code: Callable[..., Any]) -> None:
    """Give a function its code, in a function `with_compiler` of `reid_dist.kernels.settings`.

    Unlike a definition for ``numba.extending.overload``, it is not compiled apart for each of its uses.

    Parameters
    ----------
    function
        The function; kernels call it by position.
    result
        Numba type of the result, from those of the arguments; its parameters are those of the function.
    code
        Value of the result, or a tuple of values, from LLVM's builder and the arguments: arrays, which must be in C
        order, as `ArrayOperand`, others as their values.  None for no result.
    """
    from numba import extending, types

    # Untyped.
    lower: Any = extending.lower_builtin
    type_callable: Any = extending.type_callable
    any_number: Any = types.VarArg

    def operand(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if not isinstance(kind, types.Array):
            return value
        if kind.layout != "C":
            raise TypeError(f"{function.__name__} reads arrays in C order, not {kind}")
        array = context.make_array(kind)(context, builder, value)
        return ArrayOperand(
            data=array.data,
            element=context.get_data_type(kind.dtype),
            shape=[builder.extract_value(array.shape, place) for place in range(kind.ndim)],
        )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = zip(signature.args, arguments, strict=True)
        found = code(builder, *(operand(context, builder, kind, value) for kind, value in given))
        if found is None:
            return context.get_dummy_value()
        return context.make_tuple(builder, signature.return_type, found) if isinstance(found, tuple) else found

    type_callable(function)(lambda _: result)
    lower(function, any_number(types.Any))(generate)


class Variable:
    """Memory for one value, reserved once for all calls within a kernel."""

    def __init__(self, builder: Any, initial: Any) -> None:
        self._builder, self._type = builder, initial.type
        with builder.goto_entry_block():
            self.place = builder.alloca(initial.type)
        self.set(initial)

    def get(self) -> Any:
        """The value."""
        return self._builder.load(self.place, typ=self._type)

    def set(self, value: Any) -> None:
        """Store a value."""
        self._builder.store(value, self.place)


@contextlib.contextmanager
def loop(builder: Any, n: Any) -> Iterator[Any]:
    """Repeat the code of the context `n` times; yields the number of the repetition, from 0 on, of the type of `n`."""
    before = builder.block
    head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(n.type)
    number.add_incoming(n.type(0), before)
    builder.cbranch(builder.icmp_signed("<", number, n), body, end)
    builder.position_at_end(body)
    yield number
    number.add_incoming(builder.add(number, n.type(1), flags=["nsw"]), builder.block)
    builder.branch(head)
    builder.position_at_end(end)
