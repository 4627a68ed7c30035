"""Commands of a suite that make its features before the jobs that read them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from reid_dist.core.credentials import command_line, without_controls, without_credentials
from reid_dist.errors import StoreError
from reid_dist.nightly.history.history_values import PREPARATION, Code, Finding, Outcome
from reid_dist.nightly.suite import Preparation

# Seconds between a request to end and the end.
_GRACE_S: Final = 5.0

# Lines, and bytes, of the output that a finding holds.
_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 4000


class Preparations:
    """The commands of a night, each of which runs once; their output goes to files of a folder.

    `relative` is the folder as findings name it, relative to the directory of the page.
    """

    def __init__(self, folder: Path, relative: str) -> None:
        self._folder, self._relative = folder, relative
        self._findings: dict[Preparation, Finding | None] = {}

    def failure(self, wanted: Sequence[Preparation], remaining: float | None) -> Finding | None:
        """Run those commands that have not run yet; return the finding of the first that failed, None for none.

        After a failure the others are not run.  `remaining` are the seconds that the night has left, None for no limit.
        """
        for each in wanted:
            if each not in self._findings:
                limit = each.seconds if remaining is None else min(each.seconds, remaining)
                self._findings[each] = self._run(each, max(limit, 0.0))
            if (found := self._findings[each]) is not None:
                return found
        return None

    def _run(self, preparation: Preparation, seconds: float) -> Finding | None:
        name = f"{len(self._findings) + 1}.txt"
        facts: dict[str, Any] = {
            "command": command_line(preparation.words),
            "output": f"{self._relative}/{name}",
            "seconds": seconds,
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            output = (self._folder / name).open("w+b")
        except OSError as error:
            raise StoreError(f"cannot write the output of a preparation to {self._folder}: {error.strerror}") from error
        with output:
            try:
                exit_code = _exit_code(preparation.words, output.fileno(), seconds)
            except OSError as error:
                return _finding(Code.NOT_STARTED, facts | {"text": error.strerror or str(error)})
            if exit_code == 0:
                return None
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _TAIL_BYTES))
            text = without_credentials(output.read().decode("utf-8", "replace"))
        lines = [without_controls(line).rstrip() for line in text.splitlines()]
        facts["tail"] = lines[-_TAIL_LINES:]
        if exit_code is None:
            return _finding(Code.OVERTIME, facts)
        return _finding(Code.EXITED, facts | {"exit_code": exit_code})


def _finding(code: str, facts: dict[str, Any]) -> Finding:
    return Finding(gate=PREPARATION, verdict=Outcome.UNPREPARED, code=code, facts=facts)


def _exit_code(words: Sequence[str], output: int, seconds: float) -> int | None:
    """Run a command to its end and return its exit code, negative for a signal; None if it took too long.

    Both streams go to a file.  If it takes too long, or this process is interrupted, all processes of its session end.
    """
    process = subprocess.Popen(  # noqa: S603
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and the others of its session, first by request."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    # Those that a program started may outlive it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
