"""Preloaded by schedulers and workers that SSH has started: they end when the client does.

The SSH server closes standard input of a command when the connection is closed, also when the client was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

# Seconds for a server to close after SIGTERM; the process is then ended, and a worker with its nanny.
_CLOSES_WITHIN_S = 5.0


def dask_setup(_server: object) -> None:
    """Start to watch standard input; Dask calls this when a server starts."""
    threading.Thread(target=_end_with_input, name="end-with-client", daemon=True).start()


def _end_with_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_CLOSES_WITHIN_S)
    scratch = sys.modules.get("reid_dist.clusters.remote_scratch")
    if scratch is not None:
        scratch.remove()
    os._exit(1)
