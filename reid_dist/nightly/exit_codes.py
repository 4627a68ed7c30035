"""Exit codes of a night, and their meaning."""

from __future__ import annotations

from typing import Final

from reid_dist.nightly.history.values import Run

FINE: Final = 0
PARTS_FAILED: Final = 3
REGRESSION: Final = 4
NOT_COMPARED: Final = 5
STOPPED: Final = 130
"""Exit codes: an interruption outweighs a failed job, that a regression, and that a job that was not compared."""

INTERRUPTED: Final = "the night was interrupted"
"""Meaning of `STOPPED`, and reason of skipped entries of such a night."""

_MEANINGS: Final = {
    FINE: "nothing failed, nothing is worse",
    2: "wrong usage or bad input",
    PARTS_FAILED: "a job failed",
    REGRESSION: "a regression, and nothing failed",
    NOT_COMPARED: "a job could not be compared with its baseline, nothing failed, and no other is worse",
    STOPPED: INTERRUPTED,
}


def exit_code_of(run: Run) -> int:
    """Return the exit code of a night that was not interrupted."""
    if run.failures:
        return PARTS_FAILED
    if run.regressions:
        return REGRESSION
    return NOT_COMPARED if run.uncompared else FINE


def exit_meaning(code: int) -> str:
    """Return the meaning of an exit code."""
    return _MEANINGS.get(code, "not one of this command")
