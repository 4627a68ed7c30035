"""Preloaded by nannies of workers with a GPU each: the nth worker of a job, or of this machine, sees the nth GPU alone.

Nannies do this by themselves, so that local workers and those of batch jobs need no further package, keep the TLS of
their kind, and have the same GPU again when they are started again.
"""

from __future__ import annotations

import re
from typing import Any, Final

from reid_dist.core.gpus import VISIBLE_VARIABLE, visible_gpus

OWN_GPU: Final = __name__
"""The name by which nannies preload this module."""


def dask_setup(nanny: Any) -> None:
    """Choose the GPU of a worker by its name, which ends in its number; Dask calls this before it is started."""
    number, gpus = re.search(r"\d+$", str(nanny.name)), visible_gpus()
    if gpus:
        own = gpus[int(number[0]) % len(gpus) if number else 0]
        nanny.env = {**nanny.env, VISIBLE_VARIABLE: own}
