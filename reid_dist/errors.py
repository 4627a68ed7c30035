"""The exceptions of the package.

Every class has a built-in second parent, so that built-in names catch it, and an ``exit_code``, so that the command
line needs no table of its own.  A message is one line: what is wrong and where, what was found, and what to do.
Whatever is long or many (whole digests, every fault of a file) follows as details.  All are built from one message, and
keep the details as an attribute, hence survive pickling between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import ClassVar, Final, Self, TypeVar

__all__ = [
    "ClusterError",
    "DamagedPartError",
    "DamagedStoreError",
    "ExitCode",
    "FaultsError",
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


Source = TypeVar("Source")
Loaded = TypeVar("Loaded")

LONGEST_MESSAGE: Final = 160
"""Characters of a message that a terminal shows in two lines; what is longer goes into details."""


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
    details
        Lines after the message.  The command prints them indented, ``--log-json`` has them as a list, and tracebacks
        show them as notes.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    details: tuple[str, ...] = ()

    def __init__(self, message: object = "", *, details: Iterable[str] = ()) -> None:
        super().__init__(message)
        if lines := tuple(details):
            self.details = lines
            for line in lines:
                self.add_note(f"  {line}")

    @property
    def in_one_line(self) -> str:
        """The message with its details after it, for a table or a log."""
        return "; ".join((str(self), *self.details))


class InputError(ReidDistError, ValueError):
    """Features, labels or options that cannot be evaluated."""

    exit_code = ExitCode.BAD_INPUT

    @property
    def faults(self) -> tuple[str, ...]:
        """Each fault in one line."""
        return (self.in_one_line,)


class FaultsError(InputError):
    """Several faults of one input at once; each of the details is one."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Each fault in one line."""
        return self.details


class UnknownNameError(InputError, LookupError):
    """A name that is not in its registry; the message holds the nearest known one."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The message, without all other known names."""
        return (str(self),)


class PlanError(ReidDistError, MemoryError):
    """A job that cannot fit its machines; raised before any work is done."""

    def __new__(cls, *arguments: object, **_options: object) -> Self:
        """Make it as any exception: Dask's workers read errors by this method, and that of MemoryError refuses."""
        return Exception.__new__(cls, *arguments)

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


def refusal(faults: Sequence[str], what: str = "", *, many: str = "", count: int | None = None) -> InputError:
    """Return one error with all faults, at least one, of an input.

    Messages call it `what`, and `many` if there are several faults; `count` is their number where `faults` are only
    the first.
    """
    if len(faults) == 1:
        return InputError(f"{what}: {faults[0]}" if what else faults[0])
    return FaultsError(f"{what or many}: {count or len(faults)} problems", details=faults)


def refuse(faults: Sequence[str], what: str = "", *, many: str = "", count: int | None = None) -> None:
    """Raise the `refusal` of faults, if there are any."""
    if faults:
        raise refusal(faults, what, many=many, count=count)


def load_all(load: Callable[[Source], Loaded], sources: Iterable[Source]) -> list[Loaded]:
    """Load every run; one error has all that cannot be loaded, with the details of a single one."""
    loaded, failed = list[Loaded](), list[ReidDistError]()
    for source in sources:
        try:
            loaded.append(load(source))
        except ReidDistError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    refuse([str(error) for error in failed], many="runs")
    return loaded


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
