"""A query and a gallery that belong together replace two others: all of it or nothing, wherever it is cut short."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feature_arrays import SIDES, save_model

from reid_dist.errors import IncompleteStoreError, StoreError, StoreNotFoundError
from reid_dist.stores import FeatureSet, check_store, ingest, open_features

N_RENAMINGS = 4


def seen(out: Path | str) -> dict[str, str]:
    """Digests of the stores that are whole."""
    found = {}
    for role in SIDES:
        try:
            found[role] = FeatureSet.open(f"{out}/{role}.zarr").content_digest
        except (StoreNotFoundError, IncompleteStoreError):
            continue
    return found


class Models:
    """An old pair in its place, and a new one that is to come there."""

    def __init__(self, folder: Path, out: Path | str) -> None:
        self.source, self.out = save_model(folder / "new.npz", 2), out
        ingest(self.source, folder / "elsewhere", chunk_rows=20)
        self.new = seen(folder / "elsewhere")
        self.old_source = save_model(folder / "old.npz", 1)
        ingest(self.old_source, out, chunk_rows=20)
        self.old = seen(out)
        assert self.old.keys() == self.new.keys() == set(SIDES)
        assert not set(self.old.values()) & set(self.new.values())

    def replace(self) -> None:
        ingest(self.source, self.out, chunk_rows=20, overwrite=True)

    def is_mixed(self) -> bool:
        digests = set(seen(self.out).values())
        return bool(digests & set(self.old.values())) and bool(digests & set(self.new.values()))


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path, tmp_path / "out")


def at_every_renaming(monkeypatch: pytest.MonkeyPatch, report: Callable[[int], None]) -> None:
    """Call with a number before and after a store's directory gets another name: 0 and 1, 2 and 3, …"""
    rename, calls = Path.rename, iter(range(1000))

    def renamed(path: Path, target: Any) -> Path:
        if not Path(target).name.endswith((".zarr", ".incoming", ".outgoing")):
            return rename(path, target)
        report(next(calls))
        done = rename(path, target)
        report(next(calls))
        return done

    monkeypatch.setattr(Path, "rename", renamed)


def hidden(out: Path) -> list[str]:
    return sorted(entry.name for entry in out.iterdir() if entry.name.startswith("."))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("cut", range(2 * N_RENAMINGS))
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("no more")])
def test_an_interrupt_between_renamings_leaves_the_old_pair(
    models: Models, monkeypatch: pytest.MonkeyPatch, cut: int, error: BaseException
) -> None:
    def report(number: int) -> None:
        assert not models.is_mixed()
        if number == cut:
            raise error

    with monkeypatch.context() as patch:
        at_every_renaming(patch, report)
        expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else StoreError
        with pytest.raises(expected):
            models.replace()
    assert seen(models.out) == models.old
    assert hidden(Path(models.out)) == []
    models.replace()
    assert seen(models.out) == models.new


def test_the_number_of_renamings(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    at_every_renaming(monkeypatch, numbers.append)
    models.replace()
    assert numbers == list(range(2 * N_RENAMINGS))
    assert seen(models.out) == models.new
    assert hidden(Path(models.out)) == []


@pytest.mark.slow
@pytest.mark.parametrize("removed", [0, 1])
def test_an_interrupt_while_the_old_pair_is_removed_leaves_the_new_pair(
    models: Models, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    rmtree, calls = shutil.rmtree, iter(range(1000))

    def interrupted(path: Any, *args: Any, **kwargs: Any) -> None:
        if f".{SIDES[removed]}.zarr.outgoing" in str(path) and next(calls) == 1:
            raise KeyboardInterrupt
        rmtree(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            models.replace()
    assert seen(models.out) == models.new
    assert f".{SIDES[removed]}.zarr.outgoing" in hidden(Path(models.out))
    models.replace()
    assert hidden(Path(models.out)) == []
    assert not any(check_store(Path(models.out) / f"{role}.zarr").damaged for role in SIDES)


@pytest.mark.slow
def test_an_interrupt_at_the_marker_of_the_second_store_leaves_no_first_one(
    tmp_path: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is replaced, and where one side is."""
    from reid_dist.stores import writer

    write_marker = writer.write_marker

    def interrupted(uri: str, marker: dict[str, Any]) -> None:
        write_marker(uri, marker)
        if uri.endswith("gallery.zarr") and marker.get("state") == "complete":
            raise KeyboardInterrupt

    shutil.rmtree(Path(models.out) / "gallery.zarr")
    monkeypatch.setattr(writer, "write_marker", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingest(models.source, tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()
    with pytest.raises(KeyboardInterrupt):
        models.replace()
    assert seen(models.out) == {"query": models.old["query"]}
    assert [entry.name for entry in Path(models.out).iterdir()] == ["query.zarr"]
    monkeypatch.undo()
    models.replace()
    assert seen(models.out) == models.new


KILLED = """
import os, signal, sys
from pathlib import Path
from reid_dist.stores import ingest
rename, count = Path.rename, 0
def renamed(path, target):
    global count
    if not Path(target).name.endswith((".zarr", ".incoming", ".outgoing")):
        return rename(path, target)
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    count += 1
    return rename(path, target)
Path.rename = renamed
ingest(sys.argv[1], sys.argv[2], chunk_rows=20, overwrite=True)
"""


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("cut", range(1, N_RENAMINGS))
def test_a_kill_between_renamings_leaves_no_mixed_pair(models: Models, cut: int) -> None:
    out = Path(models.out)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(models.source), str(out), str(cut)], check=False, timeout=120
    )
    assert done.returncode < 0
    assert not models.is_mixed()
    missing = next(role for role in SIDES if role not in seen(out))
    for look in (lambda: FeatureSet.open(out / f"{missing}.zarr"), lambda: open_features(out, missing)):
        with pytest.raises(StoreNotFoundError, match=rf"was being replaced.*\.{missing}\.zarr\.outgoing: ingest"):
            look()
    # The old store stays until another one is complete.
    bad = save_model(out.parent / "bad.npz", 3)
    arrays = dict(np.load(bad))
    arrays["gallery_f"][0] = np.nan
    np.savez(bad, **arrays)
    before = hidden(out)
    with pytest.raises(ValueError, match="NaN"):
        ingest(bad, out, overwrite=True)
    assert [name for name in before if name.endswith(".outgoing")] == [
        name for name in hidden(out) if name.endswith(".outgoing")
    ]
    models.replace()
    assert seen(out) == models.new
    assert hidden(out) == []


def test_a_store_that_is_reached_by_a_link_is_replaced_and_what_it_led_to_stays(tmp_path: Path) -> None:
    first, second = (FeatureSet.from_arrays(np.eye(3, dtype=np.float32), [pid, 2, 3]) for pid in (1, 9))
    first.save(tmp_path / "far" / "a.zarr")
    (tmp_path / "a.zarr").symlink_to(tmp_path / "far" / "a.zarr")
    second.save(tmp_path / "a.zarr", overwrite=True)
    assert FeatureSet.open(tmp_path / "a.zarr").content_digest == second.content_digest
    assert FeatureSet.open(tmp_path / "far" / "a.zarr").content_digest == first.content_digest
    assert hidden(tmp_path) == []
