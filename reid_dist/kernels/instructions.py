"""Functions of kernels whose code is written out in LLVM's instructions, in place of that which Numba compiles.

Each is also a Python function, which readers, type checkers and kernels without compilation use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
        order, as Numba's structures of arrays, others as their values.  None for no result.
    """
    from numba import extending, types
    from numba.np import arrayobj

    # Untyped.
    make_array: Any = arrayobj.make_array
    lower: Any = extending.lower_builtin
    type_callable: Any = extending.type_callable
    any_number: Any = types.VarArg

    def operand(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if not isinstance(kind, types.Array):
            return value
        if kind.layout != "C":
            raise TypeError(f"{function.__name__} reads arrays in C order, not {kind}")
        return make_array(kind)(context, builder, value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = zip(signature.args, arguments, strict=True)
        found = code(builder, *(operand(context, builder, kind, value) for kind, value in given))
        if found is None:
            return context.get_dummy_value()
        return context.make_tuple(builder, signature.return_type, found) if isinstance(found, tuple) else found

    type_callable(function)(lambda _: result)
    lower(function, any_number(types.Any))(generate)
