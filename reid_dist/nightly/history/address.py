"""Names of runs and entries on a command line: ``FILE#RUN:model/dataset/job``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.nightly.history.history_file import History
from reid_dist.nightly.history.history_values import Run
from reid_dist.reports import Report

LATEST: Final = "latest"
LAST_GOOD: Final = "last-good"

# The shortest file that matches: the name of an entry may contain any character.
_PATTERN: Final = re.compile(rf"(.+?)#(\d+|{LATEST}|{LAST_GOOD})(?::(.+))?", re.DOTALL)
_FORM: Final = "FILE#RUN:model/dataset/job, where RUN is a number, latest or last-good"
_LONGEST: Final = 18


@dataclass(frozen=True, slots=True)
class Address:
    """Name of a run, or of an entry: `run` is a number, ``latest`` or ``last-good``; no `name` is the whole run."""

    file: Path
    run: str
    name: str | None = None

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Address:
        """Parse an address; InputError if it is invalid."""
        found = _PATTERN.fullmatch(os.fspath(text))
        if found is None or len(found[2]) > _LONGEST:
            raise InputError(f"a run of a history is named {_FORM}; found {os.fspath(text)!r}")
        return cls(Path(found[1]), found[2], found[3])


def is_address(text: str | os.PathLike[str]) -> bool:
    """Return whether a text is an address, and no existing file or directory."""
    return not Path(text).exists() and _PATTERN.fullmatch(os.fspath(text)) is not None


def find_run(history: History, address: Address) -> Run:
    """Return the run of an address; StoreNotFoundError if there is none.

    ``latest`` is the newest run, or the newest with an entry of that name; ``last-good`` the newest in which this
    entry, or without a name every entry, is good.
    """
    if address.run not in (LATEST, LAST_GOOD):
        return history.run(int(address.run))
    for run in history.newest_first(name=address.name):
        if address.name is not None and not run.entries:
            continue
        if address.run == LATEST or (run.entries and all(entry.is_good for entry in run.entries)):
            return history.run(run.number)
    what = "no run" if address.run == LATEST else "no good run"
    of = "" if address.name is None else f" of {address.name!r}"
    raise StoreNotFoundError(f"history {address.file} has {what}{of}; see `reid-dist history show {address.file}`")


def load_report(source: str | os.PathLike[str]) -> Report:
    """Read a report from a directory, or from a history by the address of its entry.

    The name may be left out for a run of one entry.  InputError for a file or an ambiguous address,
    StoreNotFoundError if there is no report, StoreError if the report or the history cannot be used.
    """
    if not is_address(source):
        if Path(source).is_file():
            raise InputError(f"{os.fspath(source)} is a file; name a directory with a report, or an entry: {_FORM}")
        return Report.load(source)
    address = Address.parse(source)
    with History.open(address.file, create=False, read_only=True) as history:
        run = find_run(history, address)
        names = [entry.name for entry in run.entries]
        if address.name is None and len(names) != 1:
            example = f"{address.file}#{run.number}:{names[0]}" if names else ""
            known = f"name one of {', '.join(names)}, as in {example}" if names else "it is empty"
            raise InputError(f"run {run.number} of history {address.file} has {len(names)} entries; {known}")
        return history.report(run.number, address.name or names[0])
