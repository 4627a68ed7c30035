"""How times, sizes and changes of a history are put into words."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from reid_dist.nightly.history.values import Change, Estimate, Finding
from reid_dist.nightly.history.wording import size
from reid_dist.reports import words

__all__ = [
    "changed",
    "difference_text",
    "estimate_text",
    "finding_text",
    "is_share",
    "jobs",
    "quantity",
    "shortened",
    "tick_day",
    "took",
    "value_text",
    "when",
]

_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)")
_HEXADECIMAL = re.compile(r"\b[0-9a-f]{16,}\b")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONGEST = 100

_NAMES: Final = {"seconds": "time", "peak_bytes": "peak memory"}


def when(stamp: str) -> str:
    """Return a time of ISO 8601 as ``2026-03-09 02:00 UTC``; what is none stands as it is."""
    found = _STAMP.match(stamp)
    return f"{stamp[:10]} {found[4]}:{found[5]} UTC" if found else stamp


def tick_day(stamp: str) -> str:
    """Return the day of a time as ``Mar 9``; what is none stands as it is, cut."""
    found = _STAMP.match(stamp)
    if found is None or not 1 <= int(found[2]) <= 12:
        return stamp[:10]
    return f"{_MONTHS[int(found[2]) - 1]} {int(found[3])}"


def took(started: str, finished: str | None) -> str:
    """Return how long a run took; empty where that is not known."""
    try:
        seconds = (datetime.fromisoformat(finished or "") - datetime.fromisoformat(started)).total_seconds()
    except (ValueError, TypeError):  # not a time, or one of them without its zone
        return ""
    # Times of runs are told in whole seconds.
    return "" if seconds < 0 else words.duration(seconds) if seconds else "less than 1 s"


def is_share(name: str) -> bool:
    """Whether a metric is printed in per cent; a threshold is not."""
    return words.metric_value(name, 0.0).endswith("%")


def value_text(name: str, value: float | None) -> str:
    """Return a metric, a time or a size as it is printed."""
    if value is None:
        return "undefined"
    if name == "seconds":
        return words.duration(value)
    return size(value) if name == "peak_bytes" else words.metric_value(name, value)


def estimate_text(name: str, estimate: Estimate | None) -> str:
    """Return a metric with its interval, as far as they are there."""
    if estimate is None:
        return "-"
    text = value_text(name, estimate.value)
    if estimate.low is None or estimate.high is None:
        return text
    # The unit stands behind the value already.
    return f"{text} {words.interval(name, (estimate.low, estimate.high)).removesuffix(' %')}"


def difference_text(change: Change, *, interval: bool = False) -> str:
    """Return by how much a quantity changed: points of a metric, the ratio of a time or a size; empty if unknown.

    Parameters
    ----------
    change
        The change.
    interval
        Whether the interval of a metric's difference is said as well.
    """
    if change.difference is None:
        return ""
    if change.name in _NAMES:
        return f"\N{MULTIPLICATION SIGN} {change.difference:.2f}"
    scale, digits, unit = (100, ".2f", " points") if is_share(change.name) else (1, ".4g", "")
    text = f"{scale * change.difference:+{digits}}{unit}"
    if interval and change.low is not None and change.high is not None:
        text += f" [{scale * change.low:+{digits}}, {scale * change.high:+{digits}}]"
    return text.replace("-", "\N{MINUS SIGN}")


def finding_text(finding: Finding) -> str:
    """Return why a gate found what it found, with the alarm in front where the reason does not begin with it."""
    if not finding.alarm or finding.reason.startswith(finding.alarm):
        return finding.reason
    return f"{finding.alarm}: {finding.reason}"


def quantity(change: Change) -> str:
    """Return the name of what changed, for people."""
    return _NAMES.get(change.name, change.name)


def changed(change: Change) -> str:
    """Return a change as ``mAP 85.20 % → 83.37 % (-1.83 points)``, with a true minus sign."""
    text = f"{quantity(change)} {value_text(change.name, change.baseline)} \N{RIGHTWARDS ARROW} "
    text += value_text(change.name, change.candidate)
    difference = difference_text(change, interval=True)
    return f"{text} ({difference})" if difference else text


def shortened(text: str, *, most: int = _LONGEST) -> str:
    """Return a text with digests cut to eight digits, and cut itself where it is very long."""
    text = _HEXADECIMAL.sub(lambda found: found[0][:8], text)
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def jobs(count: int) -> str:
    """Return ``1 job`` or ``12 jobs``."""
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"
