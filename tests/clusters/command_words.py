"""The command as a process of its own."""

from __future__ import annotations

import sys

COMMAND = (sys.executable, "-m", "reid_dist.cli")
