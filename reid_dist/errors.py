"""The exceptions of the package.

Every class has a built-in second parent, so that built-in names catch it, and an ``exit_code``, so that the command
line needs no table of its own.  A message states what was wrong, what was found and what to do.  All are built from one
message, hence survive pickling between processes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

__all__ = [
    "ClusterError",
    "DamagedPartError",
    "DamagedStoreError",
    "ExitCode",
    "IncompleteStoreError",
    "InputError",
    "PlanError",
    "ReidDistError",
    "RunFailedError",
    "ShortageError",
    "StoreError",
    "StoreExistsError",
    "StoreNotFoundError",
    "UnknownNameError",
]


class ExitCode(IntEnum):
    """What a command ends with; a signal ends it with 128 and its number."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """Make a code with its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "nothing failed and nothing is worse"
    BAD_INPUT = 2, "wrong usage or bad input"
    FAILED = 3, "a run or job failed"
    REGRESSION = 4, "a regression, but no failure"
    NOT_COMPARED = 5, "a job could not be compared with its baseline, but there is no failure or regression"
    INTERRUPTED = 130, "interrupted"


class ReidDistError(Exception):
    """Any error that this package raises on purpose.

    Attributes
    ----------
    exit_code
        What the command ends with.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class InputError(ReidDistError, ValueError):
    """Features, labels or options that cannot be evaluated."""

    exit_code = ExitCode.BAD_INPUT


class UnknownNameError(InputError, LookupError):
    """A name that is not in its registry; the message holds the nearest known one."""


class PlanError(ReidDistError, MemoryError):
    """A job that cannot fit its machines; raised before any work is done."""

    exit_code = ExitCode.BAD_INPUT


class StoreError(ReidDistError, OSError):
    """A feature store, source file or output directory that cannot be used."""

    exit_code = ExitCode.BAD_INPUT


class StoreNotFoundError(StoreError, FileNotFoundError):
    """Nothing is there."""


class StoreExistsError(StoreError, FileExistsError):
    """Something is there already and would be overwritten."""


class IncompleteStoreError(StoreError):
    """A store without a commit marker: its writer was stopped, or is still running."""


class DamagedStoreError(StoreError):
    """A store whose bytes are not those that were written; the message names array and chunk.

    Attributes
    ----------
    place
        URI of the store or of the workspace stage; empty where it is not known.
    """

    # Set after construction: pickle carries it beside the one message.
    place: str = ""


class DamagedPartError(DamagedStoreError):
    """A part of a workspace that is missing, damaged or another part; a run that can make it makes it again.

    Attributes
    ----------
    part
        Name of the part in its stage; empty for the description of the stage.
    """

    part: str = ""


class ClusterError(ReidDistError, RuntimeError):
    """A cluster that cannot be described, reached or staffed."""


class RunFailedError(ReidDistError, RuntimeError):
    """A run that started and could not be finished."""


class ShortageError(RunFailedError, MemoryError):
    """A thread or an open file that the system does not give this process."""
