"""Preloaded by local workers: what their first tasks would load, while they wait for these."""

from __future__ import annotations

import contextlib
import threading
from typing import Any


def dask_setup(_: Any) -> None:
    """Load kernels and the products of integers in a thread."""
    threading.Thread(target=_load, name="early kernels", daemon=True).start()


def _load() -> None:
    from reid_dist.engine.policy import Policy
    from reid_dist.kernels.warmup import load_compiled

    # Tasks report what is wrong.
    with contextlib.suppress(Exception):
        load_compiled()
        # Imported and tested here, not by the first task.
        Policy.in_force().integer_product()
