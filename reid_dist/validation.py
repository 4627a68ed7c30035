"""Say what is wrong with a declarative file: every problem, where it stands, and the nearest right word."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

from pydantic import ValidationError

__all__ = ["explain"]

# A few lines of YAML can name values that take gigabytes to write out.
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxother = 120


def explain(what: str, error: ValidationError, known: Iterable[str]) -> str:
    """Put all problems that pydantic found into one line.

    Parameters
    ----------
    what
        The file.
    error
        What validation raised.
    known
        Field names, for the nearest right one.
    """
    names = list(known)
    problems = []
    for problem in error.errors(include_url=False):
        path = ".".join(str(part) for part in problem["loc"]) or "the file"
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(problem["loc"][-1]), names, n=1, cutoff=0.5)
            problems.append(f"{path}: unknown key" + (f", did you mean {near[0]!r}?" if near else ""))
        elif problem["type"] == "missing":
            problems.append(f"{path}: missing")
        else:
            said = problem["msg"][:1].lower() + problem["msg"][1:]
            problems.append(f"{path}: {said}, found {_SHORT.repr(problem['input'])}")
    return f"{what} has {len(problems)} problem{'s' if len(problems) > 1 else ''}: " + "; ".join(problems)
