"""GPUs of this machine, found without beginning CUDA: once begun, it is of no use to processes that are forked."""

from __future__ import annotations

import ctypes
import os
from typing import Final

VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> tuple[str, ...]:
    """Names of the GPUs that this process may use, as `VISIBLE_VARIABLE` has them; none without a driver."""
    chosen = os.environ.get(VISIBLE_VARIABLE)
    if chosen in ("", "-1"):
        return ()
    found = tuple(str(number) for number in range(_count()))
    return found if chosen is None or not found else tuple(name.strip() for name in chosen.split(","))


def _count() -> int:
    """Number of all GPUs, by the library of the driver's management."""
    try:
        driver, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(0)
        if driver.nvmlInit_v2() != 0:
            return 0
        is_counted = driver.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        driver.nvmlShutdown()
    except (OSError, AttributeError):
        return 0
    return count.value if is_counted else 0
