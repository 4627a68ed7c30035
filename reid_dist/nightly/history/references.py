"""The entry that later nights are held against until another one is accepted."""

from __future__ import annotations

import sqlite3
from typing import Final

from reid_dist.nightly.history.rows import read_entries
from reid_dist.nightly.history.values import DONE, Entry, Past

__all__ = ["reference_entry"]

_ACCEPTED: Final = """
    WHERE runs.suite = ? AND entries.name = ? AND entries.job_digest = ? AND entries.state = ? AND number < ?
    AND entries.id IN (SELECT entry FROM accepted) ORDER BY number DESC
"""
_OLDEST: Final = """
    WHERE runs.suite = ? AND entries.name = ? AND entries.job_digest = ? AND entries.state = ? AND number < ?
    ORDER BY number
"""


def reference_entry(
    connection: sqlite3.Connection, suite: str, entry: Entry, *, before: int, file: object
) -> Past | None:
    """Return the newest accepted entry of the same name and question, or else the first good one.

    Parameters
    ----------
    connection
        In a transaction.
    suite
        Of the runs.
    entry
        What is compared.
    before
        Runs of smaller numbers only.
    file
        What an error calls the history.
    """
    parameters = (suite, entry.name, entry.job_digest, DONE, before)
    for where in (_ACCEPTED, _OLDEST):
        for number, found in read_entries(connection, where, parameters, file=file):
            if found.is_good and found.question == entry.question:
                return Past(number, found)
    return None
