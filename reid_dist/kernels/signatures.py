"""Signatures of operators and functions in kernels, looked up where the types of the arguments occurred before.

Numba tries some ten definitions of an operator, also those for strings and lists, at each of its occurrences, both in
inference and in lowering.  Functions that Numba compiles itself, as those that make arrays, would be compiled for each
number that kernels contain, as the type of a literal is its value, and each to machine code of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numba import extending
from numba.core import types, typing, utils
from numba.core.typing import templates

_Context: Any = vars(typing)["Context"]
_Resolved: Any = types.Function
_Overload: Any = templates._OverloadFunctionTemplate
_literal: Any = types.IntegerLiteral
_unliteral: Any = types.unliteral

# Functions whose results depend on the types of their arguments alone.
_OPERATORS: Final[frozenset[Any]] = frozenset(
    [*utils.OPERATORS_TO_BUILTINS, operator.getitem, operator.setitem, bool, len]
)
# Those that Numba compiles: as inner kernels, and once for all literals.
_GENERAL: Final[frozenset[Any]] = frozenset([int, max, min, np.empty, np.zeros, np.full, np.ones])
_REMEMBERED: Final = _OPERATORS | _GENERAL


class _Function(_Resolved):  # type: ignore[misc]
    """Type of a function that keeps the signatures of its calls."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        general = function.typing_key in _GENERAL
        super().__init__([_with(options, each) if general else each for each in function.templates])
        self._signatures: dict[Any, Any] = {}

    def get_call_type(self, context: Any, arguments: Any, keywords: Any) -> Any:
        """Signature of a call, or None."""
        if keywords:
            return super().get_call_type(context, arguments, keywords)
        if self.typing_key in _GENERAL:
            arguments = tuple(_unliteral(each) if isinstance(each, _literal) else each for each in arguments)
        found = self._signatures.get(arguments)
        if found is None:
            found = self._signatures[arguments] = super().get_call_type(context, arguments, keywords)
        return found


def _with(options: Mapping[str, Any], definition: Any) -> Any:
    """Definition of a function whose compilations have further options."""
    if not issubclass(definition, _Overload):
        return definition
    own: dict[str, Any] = {"_jit_options": {**definition._jit_options, **options}}
    own |= {"_impl_cache": {}, "_compiled_overloads": {}, "_inline_overloads": {}}
    return type(definition)(definition.__name__, (definition,), own)


# As Numba does for its own type of functions.
_register_model: Any = extending.register_model
_register_model(_Function)(extending.models.OpaqueModel)


class _Remembering(_Context):  # type: ignore[misc]
    """The state of another typing context, with `_Function` as the type of some functions."""

    functions: Final[dict[Any, tuple[Any, _Function]]] = {}
    options: Mapping[str, Any] = {}

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__

    def __eq__(self, other: object) -> bool:
        # Numba keeps the compiled functions of a context, which serve both.
        return isinstance(other, _Context) and vars(other) is vars(self)

    def __hash__(self) -> int:
        return id(vars(self))

    def resolve_value_type(self, value: Any) -> Any:
        """Type of a constant."""
        found = super().resolve_value_type(value)
        if not isinstance(found, _Resolved) or found.typing_key not in _REMEMBERED:
            return found
        # Definitions that are added to a function give it a new type.
        known, function = self.functions.get(found.typing_key, (None, None))
        if known is not found:
            function = _Function(found, self.options)
            self.functions[found.typing_key] = found, function
        return function

    def resolve_function_type(self, function: Any, arguments: Any, keywords: Any) -> Any:
        """Signature of a call, or None."""
        if function is operator.getitem:
            function = self.resolve_value_type(function)
        return super().resolve_function_type(function, arguments, keywords)


def remembering(context: Any, options: Mapping[str, Any]) -> Any:
    """Typing context with the state of another one, which keeps signatures; `options` are those of inner kernels."""
    _Remembering.options = options
    return context if isinstance(context, _Remembering) else _Remembering(context)
