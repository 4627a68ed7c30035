"""Preloaded by local workers: the products of integers, which their first tasks would load."""

from __future__ import annotations

import contextlib
import threading
from typing import Any


def dask_setup(_: Any) -> None:
    """Import and test the products of integers in a thread."""
    threading.Thread(target=_load, name="early products", daemon=True).start()


def _load() -> None:
    from reid_dist.engine.policy import Policy

    # Tasks report what is wrong.
    with contextlib.suppress(Exception):
        Policy.in_force().integer_product()
