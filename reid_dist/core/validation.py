"""Messages on declarative files: every problem, its place, and the nearest valid word."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from reid_dist.core.formatting import counted
from reid_dist.core.registry import nearest_hint

# A few lines of YAML can name values that take gigabytes to write out.
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxother = 120


def explain(what: str, error: ValidationError, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """Put all problems that pydantic found in the file `what` into one line; see `problems_of`."""
    return in_one_line(what, problems_of(error, known, others))


def in_one_line(what: str, problems: Sequence[str]) -> str:
    """Return the number of problems of a file, and all of them."""
    return f"{what} has {counted(len(problems), 'problem')}: " + "; ".join(problems)


def problems_of(error: ValidationError, known: Iterable[str], others: Iterable[str] = ()) -> list[str]:
    """Return each problem that pydantic found, with its path; `others` are field names of other kinds of file."""
    names, elsewhere = list(known), set(others)
    problems = []
    for problem in error.errors(include_url=False):
        path = ".".join(str(part) for part in problem["loc"]) or "the file"
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            if key in elsewhere and len(problem["loc"]) == 1:
                problems.append(f"{path}: unknown key for this kind, though others have it; leave it out")
            else:
                hint = nearest_hint(key, names)
                problems.append(f"{path}: unknown key" + (f",{hint}" if hint else ""))
        elif problem["type"] == "missing":
            problems.append(f"{path}: missing")
        else:
            text = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{path}: {text[:1].lower()}{text[1:]}, found {_SHORT.repr(problem['input'])}")
    return problems
