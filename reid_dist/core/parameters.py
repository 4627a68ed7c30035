"""Options and parameters of methods: type, limits and words of a value, declared once, and the check that all share.

A declaration is a `Parameter` in the annotation of a key or a field; the rest follows from the type beside it.  Command
line, files, specs, sweeps and functions take values by it.  The standard library alone is imported: ``--help`` reads
declarations.
"""

from __future__ import annotations

import math
import reprlib
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Any, Final, Literal, Self, TypeVar, get_args, get_origin

from reid_dist.core.specs import read_value, value_text
from reid_dist.errors import refuse

Form = Literal["flag", "whole", "number", "choice", "text", "names", "numbers", "rows", "any"]

_FORMS: Final[Mapping[Any, Form]] = {
    bool: "flag",
    int: "whole",
    float: "number",
    str: "text",
    Sequence[str]: "names",
    Sequence[float]: "numbers",
    Sequence[int]: "rows",
}
_WORDS: Final[Mapping[Form, str]] = {
    "flag": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "text": "text",
    "names": "a list of names",
    "numbers": "a list of numbers",
    "rows": "a list of whole numbers",
}
_ELEMENTS: Final[Mapping[Form, Form]] = {"names": "text", "numbers": "number", "rows": "whole"}

P = TypeVar("P", bound="Parameter")

# A few lines of YAML can name values that take gigabytes to write out.
_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """What a value may be.

    `limits` are the least and the largest number, which are allowed themselves unless `exclusive`.  `name`, `forms`,
    `choices` and `optional` (None is a value) follow from the annotation; a value fits if one of the forms does, and
    the form ``"any"`` is not checked.
    """

    help: str = ""
    limits: tuple[float, float] | None = None
    exclusive: bool = False
    name: str = ""
    forms: tuple[Form, ...] = ("any",)
    choices: tuple[str, ...] = ()
    optional: bool = False

    def of_type(self, name: str, given: Any) -> Self:
        """The same with what follows from name and type."""
        kinds = get_args(given) if get_origin(given) in (UnionType, typing.Union) else (given,)
        choices = tuple(each for kind in kinds if get_origin(kind) is Literal for each in get_args(kind))
        found = [
            _FORMS.get(kind, "choice" if get_origin(kind) is Literal else "any") for kind in kinds if kind != NoneType
        ]
        forms: tuple[Form, ...] = ("any",) if "any" in found else tuple(found)
        return replace(self, name=name, forms=forms, choices=choices, optional=NoneType in kinds)

    @property
    def form(self) -> Form:
        """The most general of its forms."""
        return self.forms[-1]

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        ranges = {"whole": self._range, "number": self._range}
        words = [
            " or ".join(", ".join(self.choices).rsplit(", ", 1))
            if form == "choice"
            else _WORDS[form] + ranges.get(form, "")
            for form in self.forms
        ]
        return ", or ".join([*words, *(["None"] if self.optional else [])])

    @property
    def _range(self) -> str:
        if self.limits is None:
            return ""
        low, high = map(_limit_text, self.limits)
        if math.isinf(self.limits[1]):
            return f" from {low}"
        return f" between {low} and {high}" if self.exclusive else f" from {low} to {high}"

    def check(self, value: Any) -> Any:
        """The value as a plain Python value; raises `ValueError`, which says what it must be."""
        value = _plain(value)
        if self.form == "any" or (value is None and self.optional):
            return value
        # Where one text may stand for a list, commas separate names in all texts.
        by_commas = {"text", "names"} <= set(self.forms)
        if by_commas and isinstance(value, str):
            value = [value]
        for form in self.forms:
            if form in _ELEMENTS:
                values = value.tolist() if hasattr(value, "tolist") else value
                is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
                if is_list and all(self._fits(_ELEMENTS[form], _plain(each)) for each in values):
                    if by_commas:
                        return tuple(name.strip() for text in values for name in text.split(","))
                    return tuple(map(_plain, values))
            elif self._fits(form, value):
                return float(value) if form == "number" else value
        raise ValueError(f"must be {self.expected}")

    def _fits(self, form: Form, value: Any) -> bool:
        if form in ("text", "choice"):
            return isinstance(value, str) and (form == "text" or value in self.choices)
        if form == "flag" or isinstance(value, bool):
            return form == "flag" and isinstance(value, bool)
        if not isinstance(value, int if form == "whole" else int | float):
            return False
        low, high = self.limits or (-math.inf, math.inf)
        # Infinite numbers, and whole numbers that are as good as these, are none.
        is_finite = form == "whole" or abs(value) <= sys.float_info.max
        return is_finite and (low < value < high if self.exclusive else low <= value <= high)

    def read(self, text: str) -> Any:
        """The value that a text means, such as one of a command line, never None; errors are those of `check`.

        Of a list of numbers, commas separate them; a text is a list with one name.
        """
        given: Any = text
        if text in self.choices:
            return text
        if self.form == "names":
            given = [text]
        elif {"numbers", "rows"} & set(self.forms):
            given = [*map(read_value, text.split(","))]
        elif {"flag", "whole", "number"} & set(self.forms):
            given = read_value(text)
        return replace(self, optional=False).check(given)


def check_values(declared: Mapping[str, Parameter], values: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """Values by name as plain Python values; one `InputError` names all that are wrong, with `of` after each name."""
    found, wrong = {}, []
    for name, value in values.items():
        try:
            found[name] = declared[name].check(value)
        except ValueError as error:
            wrong.append(f"{name}{of} {error}, found {shown(value)}")
    refuse(wrong, many=f"values{of}" if of else "options")
    return found


def declared_keys(keys: type, kind: type[P]) -> dict[str, P]:
    """Declarations of the keys of a `TypedDict` by name."""
    return {
        name: each.of_type(name, annotation.__origin__)
        for name, annotation in keys.__annotations__.items()
        for each in annotation.__metadata__
        if isinstance(each, kind)
    }


def shown(value: Any) -> str:
    """A value in the line of an error."""
    return " ".join(_SHORT.repr(value).split())


def _plain(value: Any) -> Any:
    """A scalar of NumPy as that of Python."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _limit_text(limit: float) -> str:
    """A limit in words: 2**31 - 1 is easier to read than 2147483647."""
    if isinstance(limit, int) and limit > 2**16 and limit & (limit + 1) == 0:
        return f"2**{limit.bit_length()} - 1"
    return value_text(limit)
