"""Signatures and docstrings of functions that take evaluation options as keyword arguments."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final, ForwardRef, TypeVar

from reid_dist.evaluation.options import EvaluationOptions, option_table

# Width of a docstring without its indentation.
_WIDTH: Final = 116

F = TypeVar("F", bound=Callable[..., Any])

# The entry of a docstring that is replaced by all options.
_ENTRY: Final = re.compile(r"^\*\*options(?:\n +.*)+", re.MULTILINE)


def lists_options(
    keys: type = EvaluationOptions, *, evaluation: str | None = None, before: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Show the options of an evaluation in signature and docstring of a function that takes ``**options``.

    `keys` is the TypedDict of the options; those that `evaluation` does not compute are left out.  `before` are names,
    with their help, of other keyword arguments, None by default.
    """
    shown = {name: option for name, option in option_table(keys).items() if evaluation not in option.refused_by}
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in before or ()]
    named += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=_annotation(keys, name),
        )
        for name, option in shown.items()
    ]

    def apply(function: F) -> F:
        # Python 3.13 removes the indentation of docstrings, earlier versions do not.
        signature, doc = inspect.signature(function), inspect.cleandoc(function.__doc__ or "")
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        n_positional = sum(each.kind is not each.KEYWORD_ONLY for each in own)
        parameters = [*own[:n_positional], *named, *own[n_positional:]]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]

        def entries(_: re.Match[str]) -> str:
            """Documentation of the options; one that has an entry of its own keeps that."""
            return "\n".join(
                f"{name}\n{_wrapped(each.doc or each.help, 4 * ' ')}"
                for name, each in shown.items()
                if f"\n{name}\n" not in doc
            )

        function.__doc__ = _ENTRY.sub(entries, doc)
        return function

    return apply


def _annotation(keys: type, name: str) -> Any:
    """Type of an option; a forward reference as its text."""
    found = keys.__annotations__[name].__origin__
    return found.__forward_arg__ if isinstance(found, ForwardRef) else found


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
