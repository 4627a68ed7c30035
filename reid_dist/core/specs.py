"""Specs: a name, or a call of it with named values, as commands and pipelines take them.

``k_reciprocal``, ``k_reciprocal(k1=20,variant=zhong)``, ``dba(k=5)+alpha_qe(k=5,alpha=3)``.  Where a name takes another
call, this is the first argument: ``top(k_reciprocal(k1=20),m=1000)``.  What is written here is read here as the same
values, bit for bit, so that different values have different names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from reid_dist.errors import InputError

Value = bool | int | float | str

_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Call:
    """A name with named values: ``true`` and ``false`` are bool, numbers int or float, all else text.

    `within` is the call that is its first argument.
    """

    name: str
    values: dict[str, Value] = field(default_factory=dict)
    within: Call | None = None

    @property
    def all_values(self) -> dict[str, Value]:
        """Values of this call and of those within it."""
        return {**self.values, **({} if self.within is None else self.within.all_values)}


def value_text(value: object) -> str:
    """Write a value as specs and names have it: numbers with as few digits as give the same number when read."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    # Both zeros are one value.
    short = f"{value + 0.0:g}"
    return short if float(short) == value else repr(float(value))


def call_text(name: str, values: Mapping[str, object], within: str | None = None) -> str:
    """Write a call with all of its values, and with the text of the call within it."""
    inside = [*([] if within is None else [within]), *(f"{key}={value_text(value)}" for key, value in values.items())]
    return f"{name}({','.join(inside)})" if inside else name


def parse_spec(kind: str, text: str, *, nested: bool = False) -> list[Call]:
    """Read a spec: calls from left to right, with ``+`` between them; `kind` is its name in messages.

    With `nested`, the first argument of a call may be a call.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError(
            f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} is a name or a call such as name(k=5), found {text!r}"
        )
    calls: list[Call] = []
    position = 0
    while True:
        found = _NAME.match(text, position)
        if found is not None:
            position = end = found.end()
            if text[position : position + 1] == "(":
                end = _closing(text, position)
            calls.append(_call(kind, text, found[1], text[position + 1 : end - 1], nested))
            position = end + len(text[end:]) - len(text[end:].lstrip())
            if position == len(text):
                return calls
        if found is None or text[position] != "+":
            rest = text[position:]
            raise InputError(f"cannot read {kind} {text!r} from {rest!r} on; write name or name(key=value,…)")
        position += 1


def _closing(text: str, position: int) -> int:
    """Position after the parenthesis that closes the one at `position`; `position` if none does."""
    depth = 0
    for place in range(position, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return position


def _call(kind: str, text: str, name: str, inside: str, nested: bool) -> Call:
    """Make a call from what its parentheses hold."""
    if not inside.strip():
        return Call(name)
    pieces, depth = [""], 0
    for letter in inside:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    within, values = None, dict[str, Value]()
    for place, piece in enumerate(pieces):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if nested and place == 0 and (not equals or "(" in key) and _NAME.match(piece):
            inner = parse_spec(kind, piece, nested=True)
            if len(inner) > 1:
                raise InputError(f"one {kind} at a time within {name}, found {piece.strip()!r}")
            within = inner[0]
            continue
        if not equals or not key.isidentifier() or not value or "(" in value:
            raise InputError(f"cannot read {piece.strip()!r} in {kind} {text!r}; values are given as key=value")
        if key in values:
            raise InputError(f"{key} is given twice in {kind} {text!r}")
        values[key] = read_value(value)
    return Call(name, values, within)


def read_value(text: str) -> Value:
    """Read a value: ``true`` and ``false``, a number, or else text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    except ValueError:
        # Of very many digits, Python reads no number.
        return text
