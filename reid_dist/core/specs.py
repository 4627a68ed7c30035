"""Specs: a name, or a call of it with named values, as commands and pipelines take them.

``k_reciprocal``, ``k_reciprocal(k1=20,variant=zhong)``, ``dba(k=5)+alpha_qe(k=5,alpha=3)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reid_dist.errors import InputError

Value = bool | int | float | str

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Call:
    """A name with named values: ``true`` and ``false`` are bool, numbers int or float, all else text."""

    name: str
    values: dict[str, Value] = field(default_factory=dict)


def parse_spec(kind: str, text: str) -> list[Call]:
    """Read a spec: calls from left to right, with ``+`` between them; `kind` is its name in messages."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"a {kind} is a name or a call such as name(k=5), found {text!r}")
    calls: list[Call] = []
    position = 0
    while True:
        found = _CALL.match(text, position)
        if found is not None:
            calls.append(Call(found[1], _values(kind, text, found[2] or "")))
            position = found.end()
            if position == len(text):
                return calls
        if found is None or text[position] != "+":
            rest = text[position:]
            raise InputError(f"cannot read {kind} {text!r} from {rest!r} on; write name or name(key=value,…)")
        position += 1


def _values(kind: str, text: str, inside: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for piece in inside.split(",") if inside.strip() else []:
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise InputError(f"cannot read {piece.strip()!r} in {kind} {text!r}; values are given as key=value")
        if name in values:
            raise InputError(f"{name} is given twice in {kind} {text!r}")
        values[name] = _value(value)
    return values


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
