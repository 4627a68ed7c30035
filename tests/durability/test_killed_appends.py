"""An append that is killed before any of its steps leaves the old store or the new one, and nothing stays for ever."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, append
from reid_dist.stores import check_store

# Appends in a process of its own, which is killed before it changes anything on disk for the n-th time, for every n.
# Zarr has no thread yet when it is forked.
_KILLED = """
import os, shutil, signal, sys
import reid_dist.stores.importers.appending as appending
import reid_dist.stores.importers.zarr_groups

folder, first, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
changing = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")

def run(number):
    left = number
    def audit(event, arguments):
        nonlocal left
        if event in changing or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(audit)
    appending.append(f"{folder}/{number}.zarr", f"{folder}/new.zarr")

for number in range(first, 10_000, step):
    shutil.copytree(f"{folder}/old.zarr", f"{folder}/{number}.zarr")
    child = os.fork()
    if not child:
        run(number)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
        print(number)
        break
"""


def make_sets(folder: Path) -> tuple[FeatureSet, FeatureSet, FeatureSet]:
    """A store that has been appended to twice, what is to be appended, and the set of all rows."""
    rng = np.random.default_rng(0)
    n, names = 260, np.array(["anna", "bob", "carl"])
    whole = FeatureSet.from_arrays(
        rng.standard_normal((n, 4)).astype(np.float32),
        names[rng.integers(0, 3, n)],
        rng.integers(0, 3, n),
        columns={"tracklet": rng.integers(0, 9, n)},
    )
    edges = (0, 90, 130, 170, n)
    parts = [whole.take(np.arange(start, stop)) for start, stop in pairwise(edges)]
    old = parts[0].save(folder / "old.zarr", chunk_rows=40)
    for number, part in enumerate(parts[1:3]):
        append(old.uri, part.save(folder / f"part-{number}.zarr").uri)
    return FeatureSet.open(old.uri), parts[3].save(folder / "new.zarr"), whole


def files(store: Path) -> list[str]:
    """Files of a store, without the names of its parts."""
    found = [path.relative_to(store).parts for path in store.rglob("*") if path.is_file()]
    return sorted("/".join(parts[2:] if parts[0] == "appended" else parts) for parts in found)


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_leaves_the_old_store_or_the_new_one(tmp_path: Path, step: int) -> None:
    old, new, whole = make_sets(tmp_path)
    more = new.take(np.arange(30)).save(tmp_path / "more.zarr")
    command = [sys.executable, "-c", _KILLED, str(tmp_path), "1", str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    n_steps = int(done.stdout)
    assert n_steps > 60
    undisturbed = tmp_path / f"{n_steps}.zarr"
    assert FeatureSet.open(undisturbed).content_digest == whole.content_digest
    append(undisturbed, more.uri)
    seen = []
    for number in range(1, n_steps, step):
        place = tmp_path / f"{number}.zarr"
        found = FeatureSet.open(place)
        assert not check_store(place).damaged, number
        seen.append(found.content_digest)
        left = whole if found.content_digest == whole.content_digest else old
        np.testing.assert_array_equal(found.read(0, found.n_rows), whole.read(0, left.n_rows))
        # What is left of it does not hinder the next one, which removes it.
        if left is old:
            assert append(place, new.uri).content_digest == whole.content_digest
        append(place, more.uri)
        assert not check_store(place).damaged, number
        assert files(place) == files(undisturbed), number
        shutil.rmtree(place)
    assert seen == sorted(seen, key=lambda digest: digest == whole.content_digest)
    assert set(seen) == {old.content_digest, whole.content_digest}
