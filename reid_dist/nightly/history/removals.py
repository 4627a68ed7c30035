"""Jobs that were taken out of a suite: they fail no more, and nothing else would say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reid_dist.nightly.history.values import Run

__all__ = ["Removal", "removals"]


@dataclass(frozen=True, slots=True)
class Removal:
    """A job that is no longer in its suite, or has another name there.

    Attributes
    ----------
    name
        ``model/dataset/job``.
    run
        Number of the last run that had it.
    """

    name: str
    run: int

    def __str__(self) -> str:
        return f"no longer in the suite (last in run {self.run})"


def removals(run: Run, earlier: Sequence[Run]) -> tuple[Removal, ...]:
    """Return the jobs that were in the suite in the night before and are not in it tonight, in the order of then.

    A job that was only left out, as by ``--only``, is in the suite still.

    Parameters
    ----------
    run
        Tonight's.
    earlier
        The runs of its suite before, oldest first.
    """
    # A killed night has reported nothing.
    before = next((each for each in reversed(earlier) if each.finished is not None), None)
    if not run.planned or before is None:
        return ()
    now = frozenset(run.planned)
    return tuple(Removal(name, _last_run(name, earlier) or before.number) for name in before.planned if name not in now)


def _last_run(name: str, earlier: Sequence[Run]) -> int | None:
    return next((run.number for run in reversed(earlier) if any(entry.name == name for entry in run.entries)), None)
