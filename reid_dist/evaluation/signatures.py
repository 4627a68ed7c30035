"""Signatures and docstrings of functions that take evaluation options as keyword arguments."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final, ForwardRef, TypeVar

from reid_dist.core.parameters import Parameter
from reid_dist.evaluation.options import OPTIONS, Option, SplitEvaluationOptions

# Width of a docstring without its indentation.
_WIDTH: Final = 116

F = TypeVar("F", bound=Callable[..., Any])

# The entry of a docstring that is replaced by all options.
_ENTRY: Final = re.compile(r"^\*\*options(?:\n +.*)+", re.MULTILINE)


def lists_options(
    known: Mapping[str, Option] = OPTIONS,
    *,
    evaluation: str | None = None,
    before: Mapping[str, Parameter] | None = None,
) -> Callable[[F], F]:
    """Show the options of an evaluation in signature and docstring of a function that takes ``**options``.

    `before` are other keyword arguments by name, None by default.
    """
    shown = {name: option for name, option in known.items() if evaluation not in option.refused_by}
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in before or ()]
    named += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=_annotation(name),
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
            words = {name: each.help for name, each in (before or {}).items()}
            words |= {name: each.doc or each.help for name, each in shown.items()}
            return "\n".join(
                f"{name}\n{_wrapped(text, 4 * ' ')}" for name, text in words.items() if f"\n{name}\n" not in doc
            )

        function.__doc__ = _ENTRY.sub(entries, doc)
        return function

    return apply


def _annotation(name: str) -> Any:
    """Type of an option; a forward reference as its text."""
    found = SplitEvaluationOptions.__annotations__[name].__origin__
    return found.__forward_arg__ if isinstance(found, ForwardRef) else found


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
