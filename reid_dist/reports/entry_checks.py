"""Checks of the entries of a report beside metrics and curves: intervals, bounds, verification, run.

None of them is part of the result digest; `ReportData` describes them.  Each function takes arrays, numpy numbers and
NaN for "no value", raises `InputError` for another shape, and returns plain values with None for "no value", equal to
those read from ``report.json``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from reid_dist.errors import InputError
from reid_dist.reports.documents import plain

_UNITS: Final = ("identity", "query")


def checked_confidence(confidence: Mapping[str, Any] | None, metrics: Collection[str]) -> dict[str, Any] | None:
    """Return confidence intervals of these metrics as plain values."""
    if confidence is None:
        return None
    checked = described("confidence", confidence, ("level", "unit", "n_resamples", "seed", "intervals"))
    if not (_is_number(checked["level"]) and 0 < checked["level"] < 1):
        raise InputError(f"confidence: level must lie between 0 and 1, found {checked['level']!r}")
    if checked["unit"] not in _UNITS:
        raise InputError(f"confidence: unit must be one of {', '.join(_UNITS)}, found {checked['unit']!r}")
    # Reports of earlier versions do not have the number of units.
    require_counts("confidence", [(name, checked[name]) for name in ("n_units", "n_resamples") if name in checked])
    if not isinstance(checked["intervals"], dict):
        raise InputError(f"confidence: intervals must be a mapping, found {type(checked['intervals']).__name__}")
    for name, ends in checked["intervals"].items():
        if name not in metrics:
            raise InputError(f"confidence has an interval for {name!r}, which is none of the metrics")
        if ends != [None, None]:
            require_ordered_pair("confidence interval", name, ends)
    return checked


def checked_bounds(bounds: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return bounds as plain values: ``[lowest, highest]`` by metric."""
    checked: dict[str, list[float]] = plain(bounds)
    for name, ends in checked.items():
        require_ordered_pair("bounds", name, ends)
    return checked


def checked_verification(verification: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return counts and thresholds of verification as plain values; an infinite threshold stays infinite."""
    if verification is None:
        return None
    checked: dict[str, Any] = plain(verification)
    require_counts("verification", [(name, value) for name, value in checked.items() if name.startswith("n_")])
    thresholds = verification.get("thresholds", {})
    if not isinstance(thresholds, Mapping):
        raise InputError(f"verification: thresholds must be a mapping, found {type(thresholds).__name__}")
    for name, value in thresholds.items():
        try:
            threshold = math.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise InputError(f"verification: the threshold of {name!r} must be a number, found {value!r}") from None
        checked["thresholds"][str(name)] = None if math.isnan(threshold) else threshold
    return checked


def checked_run(run: Mapping[str, str]) -> dict[str, str]:
    """Return the origin of a report, a mapping of texts."""
    if not isinstance(run, Mapping):
        raise InputError(f"run must be a mapping, found {type(run).__name__}")
    for name, text in run.items():
        if not isinstance(text, str):
            raise InputError(f"run: {name} must be a text, found {text!r}")
    return {str(name): text for name, text in run.items()}


def described(what: str, given: object, parts: Collection[str]) -> dict[str, Any]:
    """Return a mapping as plain values if it has these parts."""
    if not isinstance(given, Mapping):
        raise InputError(f"{what} must be a mapping, found {type(given).__name__}")
    missing = [part for part in parts if part not in given]
    if missing:
        raise InputError(f"{what} lacks {', '.join(missing)}")
    checked: dict[str, Any] = plain(given)
    return checked


def require_numbers(what: str, name: str, values: Collection[Any]) -> None:
    """Refuse what is neither a number nor None."""
    for value in values:
        if value is not None and not _is_number(value):
            raise InputError(f"{what}: {name!r} must hold numbers or None, found {value!r}")


def require_counts(what: str, counts: Collection[tuple[str, Any]]) -> None:
    """Refuse what is no whole number of 0 or more."""
    for name, value in counts:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(f"{what}: {name} must be a count, found {value!r}")


def require_ordered_pair(what: str, name: str, ends: object) -> None:
    """Refuse what is no interval."""
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_number, ends)) or ends[0] > ends[1]:
        raise InputError(f"{what} of {name!r} must be two finite numbers, the lower one first; found {ends!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
