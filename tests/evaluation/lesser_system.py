"""A program that takes features through the package where the system has none of the calls that Linux alone has.

They are removed before anything else is imported, and what the package opens in /proc and /sys is not there.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import select
import signal
import sys
import time
from types import ModuleType
from typing import Any

# Beginnings of names that macOS, or any of its versions, or another Unix lacks.
_LACKING: dict[ModuleType, str] = {
    os: "sched_ SCHED_ pread pwritev preadv O_NOFOLLOW O_DIRECT O_PATH O_TMPFILE O_RSYNC RWF_ memfd_ MFD_ eventfd EFD_ "
    "pidfd_ PIDFD_ posix_fa POSIX_FADV_ copy_file_range splice getxattr setxattr listxattr removexattr getres setres "
    "unshare setns pipe2 fdatasync CLONE_ timerfd_ TFD_",
    mmap: "MADV_",
    signal: "SIGPWR SIGSTKFLT SIGPOLL SIGCLD SIGRT sigtimedwait sigwaitinfo pidfd_send_signal",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    resource: "prlimit RUSAGE_THREAD RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RT RLIMIT_SIGPENDING",
    select: "epoll EPOLL",
}
_EVERYWHERE = "pread"
_TABLES = ("/proc/", "/sys/")


def lacking_names() -> list[tuple[ModuleType, str]]:
    """Modules of this system, and what others lack of them."""
    return [
        (module, name)
        for module, beginnings in _LACKING.items()
        for name in vars(module)
        if name.startswith(tuple(beginnings.split())) and name != _EVERYWHERE
    ]


def _refuse_tables(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse the package, and not what it imports, a file of Linux alone."""
    if event not in ("open", "os.scandir", "os.listdir") or not str(arguments[0]).startswith(_TABLES):
        return
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("pathlib", "glob", "io"):
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__", "").startswith("reid_dist."):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def results(source: str, folder: str) -> dict[str, Any]:
    """What one process finds in a file of both sides: digest of an evaluation, neighbours, rows and checks."""
    import numpy as np

    from reid_dist import FeatureSet, evaluate, ingest, nearest
    from reid_dist.nightly.memory import peak_bytes, reset_peaks
    from reid_dist.stores import check_store

    ingest(source, folder, chunk_rows=64)
    query, gallery = (FeatureSet.open(f"{folder}/{side}.zarr") for side in ("query", "gallery"))
    report = evaluate(query, gallery, topk=5)
    in_memory = FeatureSet.from_arrays(query.read(0, query.n_rows), query.pids, query.camids)
    every_other = np.arange(0, gallery.n_rows, 2)
    reset_peaks(None)
    return {
        "digest": report.result_digest,
        "in memory": evaluate(in_memory, gallery, topk=5).result_digest,
        "neighbours": nearest(query, gallery, k=5).index.tolist(),
        # The second time from verified chunks, single rows.
        "rows": [float(gallery.read_rows(every_other).sum(dtype=np.float64)) for _ in range(2)],
        "damaged": [check_store(f"{folder}/{side}.zarr").damaged for side in ("query", "gallery")],
        "knows peaks": peak_bytes(None) is not None,
    }


if __name__ == "__main__":
    for module, name in lacking_names():
        delattr(module, name)
    # Where there are no affinities, as there since Python 3.13.
    os.process_cpu_count = os.cpu_count
    sys.addaudithook(_refuse_tables)
    print(json.dumps(results(*sys.argv[1:])))
