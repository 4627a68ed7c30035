"""A scheduler that goes away while a command waits for workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from local_workers import dask_words
from processes import wait_until

from reid_dist.clusters import connect, read_cluster
from reid_dist.errors import ClusterError


@pytest.mark.slow
def test_a_scheduler_that_is_lost_before_workers_come(tmp_path: Path) -> None:
    scheduler_file = tmp_path / "scheduler.json"
    words = [sys.executable, "-m", "dask", "scheduler", *dask_words(scheduler_file), "--port", "0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"kind: existing\nscheduler_file: {scheduler_file}\nwait_for_workers: 1\ntimeout_s: 300\n")
    with subprocess.Popen(words, cwd=tmp_path, **quiet) as scheduler:
        wait_until(scheduler_file.exists, "the scheduler", 60)
        # Some time after the client has found it, and long before workers are given up.
        timer = threading.Timer(3, scheduler.kill)
        timer.start()
        begin = time.monotonic()
        try:
            with pytest.raises(ClusterError) as caught, connect(read_cluster(cluster)):
                pass
        finally:
            timer.join()
            scheduler.kill()
    # Not when workers would be given up.
    assert time.monotonic() - begin < 100
    message = str(caught.value)
    assert message.startswith(f"lost the scheduler of {scheduler_file} while waiting for workers")
    assert "\n" not in message
