"""The operating systems that the package runs on; imported before everything else, with the standard library alone."""

from __future__ import annotations

import sys
from pathlib import PureWindowsPath


def refuse_windows() -> None:
    """Refuse Windows, which lacks locks, signals and processes of POSIX: the command in one line, else ImportError."""
    if sys.platform == "win32":
        message = (
            "reid-dist does not run on Windows, which lacks the locks and signals of POSIX: install and use it in the "
            "Windows Subsystem for Linux (wsl --install)"
        )
        is_command = PureWindowsPath(sys.argv[0]).stem == "reid-dist"
        if is_command or sys.orig_argv[1:3] == ["-m", "reid_dist.cli"]:
            print(f"Error: {message}", file=sys.stderr)
            raise SystemExit(2)
        raise ImportError(message)
