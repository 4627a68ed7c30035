"""Checks of the entries of a report beside metrics and curves: intervals, bounds, breakdowns, verification, run.

None of them is part of the result digest; `ReportData` describes them.  Each function takes arrays, numpy numbers and
NaN for "no value", raises `InputError` for another shape, and returns plain values with None for "no value", equal to
those read from ``report.json``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from reid_dist.errors import InputError
from reid_dist.reports.documents import plain

BREAKDOWN_KEYS: Final = {"camera": "camid", "identity": "pid"}
"""Column that names the groups of a breakdown; ``value`` for every label column."""

MEAN_OF_GROUPS: Final = "mean_of_groups"
"""Entry of a breakdown by groups of queries: the mean over the groups, by metric."""

INTERVALS: Final = "intervals"
"""Entry of a breakdown: the interval in the place of every value, by metric."""

N_IDENTITIES: Final = "n_identities"
"""Column of a breakdown by groups of queries with intervals: identities that these are drawn from."""

_UNITS: Final = ("identity", "query")
_ORDERS: Final = ("stored", "random")


def checked_confidence(confidence: Mapping[str, Any] | None, metrics: Collection[str]) -> dict[str, Any] | None:
    """Return confidence intervals of these metrics as plain values."""
    if confidence is None:
        return None
    checked = _described("confidence", confidence, ("level", "unit", "n_resamples", "seed", "intervals"))
    if not (_is_number(checked["level"]) and 0 < checked["level"] < 1):
        raise InputError(f"confidence: level must lie between 0 and 1, found {checked['level']!r}")
    if checked["unit"] not in _UNITS:
        raise InputError(f"confidence: unit must be one of {', '.join(_UNITS)}, found {checked['unit']!r}")
    # Reports of earlier versions do not have the number of units.
    _require_counts("confidence", [(name, checked[name]) for name in ("n_units", "n_resamples") if name in checked])
    if not isinstance(checked["intervals"], dict):
        raise InputError(f"confidence: intervals must be a mapping, found {type(checked['intervals']).__name__}")
    for name, ends in checked["intervals"].items():
        if name not in metrics:
            raise InputError(f"confidence has an interval for {name!r}, which is none of the metrics")
        if ends != [None, None]:
            _require_ordered_pair("confidence interval", name, ends)
    return checked


def checked_bounds(bounds: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return bounds as plain values: ``[lowest, highest]`` by metric."""
    checked: dict[str, list[float]] = plain(bounds)
    for name, ends in checked.items():
        _require_ordered_pair("bounds", name, ends)
    return checked


def checked_problems(problems: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return likely errors of the data as plain values."""
    if problems is None:
        return None
    kinds = ("suspects", "duplicates", "identities")
    checked = _described("data_problems", problems, (*kinds, *(f"n_{kind}" for kind in kinds), "cameras"))
    _require_counts("data_problems", [(f"n_{kind}", checked[f"n_{kind}"]) for kind in kinds])
    return checked


def checked_hardest(hardest: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the hardest queries with their nearest relevant items as plain values."""
    found = [_described("hardest", each, ("query", "gallery", "rank", "distance", "pids")) for each in hardest]
    for each in found:
        _require_counts("hardest", [(name, each[name]) for name in ("query", "gallery", "rank")])
    return found


def checked_breakdowns(breakdowns: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return breakdowns by name as plain values."""
    checked: dict[str, dict[str, Any]] = {}
    for name, table in breakdowns.items():
        check = {"camera_pair": _checked_pairs, "gallery_size": _checked_sizes}.get(name, _checked_groups)
        # Reports of earlier versions, and those without confidence, have no intervals.
        given = dict(table) if isinstance(table, Mapping) else table
        ends = given.pop(INTERVALS, None) if isinstance(given, dict) else None
        checked[str(name)] = check(str(name), given)
        if ends is not None:
            checked[str(name)][INTERVALS] = _checked_ends(str(name), ends, checked[str(name)])
    return checked


def checked_verification(verification: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return counts and thresholds of verification as plain values; an infinite threshold stays infinite."""
    if verification is None:
        return None
    checked: dict[str, Any] = plain(verification)
    _require_counts("verification", [(name, value) for name, value in checked.items() if name.startswith("n_")])
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


def _checked_groups(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    key = BREAKDOWN_KEYS.get(name, "value")
    checked = _described(f"breakdown {name!r}", table, (key, "n_query", "n_valid"))
    # Reports of earlier versions do not have it.
    means = checked.pop(MEAN_OF_GROUPS, {})
    _require_columns(name, key, checked, tuple(checked))
    for column in ("n_query", "n_valid", N_IDENTITIES):
        _require_counts(f"breakdown {name!r}", [(column, count) for count in checked.get(column, ())])
    _require_numbers(name, {column: checked[column] for column in checked if column != key})
    if not isinstance(means, dict) or not means.keys() <= checked.keys():
        raise InputError(f"breakdown {name!r}: {MEAN_OF_GROUPS!r} must be a mapping from metrics, found {means!r}")
    _require_numbers(name, {f"{MEAN_OF_GROUPS} of {metric}": [mean] for metric, mean in means.items()})
    return checked | ({MEAN_OF_GROUPS: means} if means else {})


def _checked_ends(name: str, given: object, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the intervals of a breakdown, which have the places of the values of its metrics."""
    checked = _described(f"{INTERVALS} of breakdown {name!r}", given, ())
    for metric, ends in checked.items():
        pairs, values = ends, table.get(metric)
        if name == "camera_pair" and isinstance(ends, list) and isinstance(values, list):
            pairs, values = ([each for row in both for each in row] for both in (ends, values))
        if not isinstance(pairs, list) or not isinstance(values, list) or len(pairs) != len(values):
            raise InputError(f"breakdown {name!r}: {INTERVALS} of {metric!r} must be one for each of its values")
        for pair in pairs:
            if pair != [None, None]:
                _require_ordered_pair(f"interval of breakdown {name!r}", metric, pair)
    return checked


def _checked_sizes(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    checked = _described(f"breakdown {name!r}", table, ("order", "seed", "n_rows"))
    if checked["order"] not in _ORDERS:
        raise InputError(f"breakdown {name!r}: order must be one of {', '.join(_ORDERS)}, found {checked['order']!r}")
    columns = tuple(column for column in checked if column not in ("order", "seed"))
    _require_columns(name, "n_rows", checked, columns)
    _require_counts(f"breakdown {name!r}", [("n_rows", count) for count in checked["n_rows"]])
    if checked["n_rows"] != sorted(set(checked["n_rows"])):
        raise InputError(f"breakdown {name!r}: n_rows must ascend, found {checked['n_rows'][:12]}")
    _require_numbers(name, {column: checked[column] for column in columns})
    return checked


def _checked_pairs(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    sides = ("query_camid", "gallery_camid")
    checked = _described(f"breakdown {name!r}", table, (*sides, "n_valid"))
    for side in sides:
        _require_columns(name, side, checked, (side,))
    shape = len(checked["query_camid"]), len(checked["gallery_camid"])
    for column, matrix in checked.items():
        if column in sides:
            continue
        rows = matrix if isinstance(matrix, list) else []
        if len(rows) != shape[0] or any(not isinstance(row, list) or len(row) != shape[1] for row in rows):
            raise InputError(
                f"breakdown {name!r}: {column!r} must hold {shape[0]} rows (query cameras) of {shape[1]} values "
                "(gallery cameras)"
            )
        _require_numbers(name, {column: [value for row in rows for value in row]})
    return checked


def _described(what: str, given: object, parts: Collection[str]) -> dict[str, Any]:
    """Return a mapping as plain values if it has these parts."""
    if not isinstance(given, Mapping):
        raise InputError(f"{what} must be a mapping, found {type(given).__name__}")
    missing = [part for part in parts if part not in given]
    if missing:
        raise InputError(f"{what} lacks {', '.join(missing)}")
    checked: dict[str, Any] = plain(given)
    return checked


def _require_columns(name: str, key: str, table: Mapping[str, Any], columns: Collection[str]) -> None:
    for column in columns:
        values = table[column]
        if not isinstance(values, list):
            raise InputError(f"breakdown {name!r}: {column!r} must be a list, found {type(values).__name__}")
        if len(values) != len(table[key]):
            raise InputError(
                f"breakdown {name!r}: {column!r} has {len(values)} values for {len(table[key])} entries of {key!r}"
            )


def _require_numbers(name: str, columns: Mapping[str, list[Any]]) -> None:
    for column, values in columns.items():
        for value in values:
            if value is not None and not _is_number(value):
                raise InputError(f"breakdown {name!r}: {column!r} must hold numbers or None, found {value!r}")


def _require_counts(what: str, counts: Collection[tuple[str, Any]]) -> None:
    for name, value in counts:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(f"{what}: {name} must be a count, found {value!r}")


def _require_ordered_pair(what: str, name: str, ends: object) -> None:
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_number, ends)) or ends[0] > ends[1]:
        raise InputError(f"{what} of {name!r} must be two finite numbers, the lower one first; found {ends!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
