"""Every public function through damage of a kept part, a killed worker, a second client, and workers without its files.

A function is given by a call of the sets of a folder that returns its result as a text; all troubles are those of any.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from support.local_workers import started

from reid_dist import (
    DistanceBlock,
    conventions,
    evaluate,
    evaluate_distances,
    evaluate_splits,
    k_reciprocal_graph,
    nearest,
    operating_points,
    pool,
    reranked_distances,
    sweep_parameters,
)
from reid_dist.core.fingerprint import fingerprint
from reid_dist.errors import StoreError
from reid_dist.stores import FeatureSet, Stage, Workspace

_SPEC = "k_reciprocal(k1=5,k2=2)"
_TILES = 16
# Every process has a folder of its own there, as machines without a shared file system have.
_HERE = "/proc/self/cwd"

Call = Callable[..., str]


def _sides(folder: str) -> tuple[str, str]:
    return f"{folder}/query.zarr", f"{folder}/gallery.zarr"


def _array(values: Any) -> str:
    return fingerprint(np.asarray(values).tolist())


def _nearest(folder: str, **where: Any) -> str:
    found = nearest(*_sides(folder), k=4, chunk_rows=_TILES, **where)
    return _array(found.index) + _array(found.distance)


def _nearest_within(folder: str, **where: Any) -> str:
    features = _sides(folder)[1]
    found = nearest(features, features, k=4, chunk_rows=_TILES, **where)
    return _array(found.index) + _array(found.distance)


def _graph(folder: str, **where: Any) -> str:
    return _array(k_reciprocal_graph(_sides(folder)[1], rerank=_SPEC, chunk_rows=_TILES, **where).to_scipy().toarray())


def _reranked(folder: str, **where: Any) -> str:
    return _array(reranked_distances(*_sides(folder), rerank=_SPEC, rows=[0, 3], chunk_rows=_TILES, **where))


def _pooled(folder: str, **where: Any) -> str:
    # The store is of this process alone; the source and the parts are read and written by workers.
    target = Path.cwd() / f"pooled-{threading.get_ident()}.zarr"
    return pool(_sides(folder)[1], target, by="pid_camid", overwrite=True, **where).content_digest


def _distances(folder: str, **where: Any) -> str:
    block = DistanceBlock.open(f"{folder}/distances.npy")
    return evaluate_distances(block, *_sides(folder), chunk_rows=_TILES, **where).result_digest


def _conventions(folder: str, *, also: Sequence[str] = (), **where: Any) -> str:
    table = conventions(*_sides(folder), distances=["cosine"], also=also, chunk_rows=_TILES, **where)
    return _array([row.value for row in table.rows])


def _equal_error(folder: str, **where: Any) -> str:
    """With its interval, for which one more pass is made."""
    report = evaluate(*_sides(folder), metrics="mAP,EER,TAR@FAR=0.1", chunk_rows=_TILES, **where)
    return report.result_digest + str(report.confidence)


def _of_report(function: Callable[..., Any], **options: Any) -> Call:
    """A function that takes query and gallery, and returns a report."""
    return lambda folder, **where: function(*_sides(folder), chunk_rows=_TILES, **options, **where).result_digest


CALLS: dict[str, Call] = {
    "evaluate": _of_report(evaluate),
    "evaluate_stages": _of_report(evaluate, expand="dba(k=2)+aqe(k=2)", rerank=_SPEC),
    "evaluate_benchmark": _of_report(evaluate, benchmark="veri776"),
    "evaluate_draws": _of_report(evaluate_splits, benchmark="prcc_same_single_shot"),
    "evaluate_distances": _distances,
    "evaluate_splits": _of_report(evaluate_splits, repeats=2, protocol="no_cameras", rerank=_SPEC),
    "sweep_parameters": _of_report(sweep_parameters, rerank="k_reciprocal(k2=2)", k1=[4, 5]),
    "conventions": _conventions,
    "conventions_also": partial(_conventions, also=[_SPEC, "float16+dba(k=2)"]),
    "evaluate_errors": _equal_error,
    "operating_points": _of_report(operating_points, rerank="k_reciprocal(k1=5,k2=2,variant=paper)"),
    "nearest": _nearest,
    "nearest_within": _nearest_within,
    "k_reciprocal_graph": _graph,
    "reranked_distances": _reranked,
    "pool": _pooled,
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both stores, and a matrix of distances."""
    folder = tmp_path_factory.mktemp("sets")
    rng = np.random.default_rng(11)
    for name, n in (("query", 24), ("gallery", 60)):
        features = rng.integers(-4, 5, (n, 8)).astype(np.float32)
        features[:, 0] += 0.5
        camids = rng.integers(1, 4, n)
        FeatureSet.from_arrays(features, np.arange(n) % 6 + 1, camids).save(folder / f"{name}.zarr", chunk_rows=_TILES)
    np.save(folder / "distances.npy", rng.integers(0, 99, (24, 60)).astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def right(sets: Path) -> dict[str, str]:
    """Results that nothing happens to, by name of the function; computed at their first use."""

    class Results(dict[str, str]):
        def __missing__(self, name: str) -> str:
            self[name] = CALLS[name](str(sets))
            return self[name]

    return Results()


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with started(2, tmp_path_factory.mktemp("workers")) as client:
        yield client


def _damage(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cut the first part of every kind of stage when it was written; return the names of these stages."""
    write, struck = Stage.write, list[str]()

    def written(stage: Stage, part: str, arrays: Any) -> int:
        size, kind = write(stage, part, arrays), Path(stage.path).name.rpartition("-")[0]
        if kind not in struck:
            struck.append(kind)
            path = Path(stage.path) / f"{part}.npz"
            path.write_bytes(path.read_bytes()[: size // 2])
        return size

    monkeypatch.setattr(Stage, "write", written)
    return struck


_KILLED = """
import os, signal
from pathlib import Path
from reid_dist.engine import graph, tasks
from reid_dist.stores import Stage

def drops_single_rows(real):
    def struck(*given):
        try:
            Path({marker!r}).touch(exist_ok=False)
        except FileExistsError:
            return real(*given)
        os.kill(os.getpid(), signal.SIGKILL)
    return struck

if {keeps_parts}:
    Stage.write = drops_single_rows(Stage.write)
else:
    graph.tile_task = tasks.tile_task = drops_single_rows(graph.tile_task)
"""


def _run(source: str) -> None:
    """Run a text in a worker."""
    exec(compile(source, "<test>", "exec"), {})


def _with_damage(call: Call, sets: Path, place: Path, workers: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run whose parts are damaged as they are written, and one on what it has left."""
    struck = _damage(monkeypatch)
    first = call(str(sets), workspace=place)
    assert struck, "the function keeps no parts"
    monkeypatch.undo()
    monkeypatch.chdir(place.parent)
    return [first, call(str(sets), workspace=place)]


def _with_a_kill(call: Call, sets: Path, place: Path, workers: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run in which a worker is killed as it writes its first part, or begins its first task."""
    marker = place.parent / "killed"
    with started(2, place.parent / "dask") as client:
        client.run(_run, _KILLED.format(marker=str(marker), keeps_parts=call is not _nearest))
        found = call(str(sets), workspace=place, client=client)
    assert marker.exists(), "no worker was killed"
    return [found]


def _with_two_clients(
    call: Call, sets: Path, place: Path, workers: Client, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Two runs at a time over one workspace, by clients of their own."""
    found: list[str] = []
    with Client(workers.scheduler.address, set_as_default=False) as other:
        runs = [
            threading.Thread(target=lambda client=client: found.append(call(str(sets), workspace=place, client=client)))
            for client in (workers, other)
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
    assert len(found) == 2
    return found


_QUICK = {("evaluate_stages", "damage"), ("pool", "kill"), ("nearest_within", "second_client")}
# The search between two sets keeps nothing that could be damaged.
CASES = [
    pytest.param(name, trouble, marks=() if (name, trouble) in _QUICK else pytest.mark.slow)
    for name in CALLS
    for trouble in ("damage", "kill", "second_client")
    if (name, trouble) != ("nearest", "damage")
]
TROUBLES = {"damage": _with_damage, "kill": _with_a_kill, "second_client": _with_two_clients}


@pytest.mark.filterwarnings("ignore:.*made again:UserWarning", "ignore:another run works on:UserWarning")
@pytest.mark.parametrize(("name", "trouble"), CASES)
def test_the_result_stays(
    name: str,
    trouble: str,
    sets: Path,
    right: dict[str, str],
    workers: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = right[name]
    found = TROUBLES[trouble](CALLS[name], sets, tmp_path / "work", workers, monkeypatch)
    assert set(found) == {expected}
    assert not [path for path in (tmp_path / "work").rglob(".*") if path.is_file()], "drafts are left"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("evaluate_distances", "pool") else pytest.mark.slow) for name in CALLS],
)
def test_workers_that_see_no_files_are_refused_in_one_line(
    name: str, sets: Path, workers: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = tmp_path / "client", tmp_path / "workers"
    shutil.copytree(sets, mine)
    theirs.mkdir()
    monkeypatch.chdir(mine)
    before = workers.run(os.getcwd)
    workers.run(os.chdir, str(theirs))
    try:
        for folder, workspace, words in (
            (_HERE, tmp_path / "work", "cannot read the "),
            (str(sets), Path(_HERE) / "work", "cannot read the workspace"),
        ):
            with pytest.raises(StoreError, match=words) as caught:
                CALLS[name](folder, client=workers, workspace=workspace)
            assert "\n" not in str(caught.value)
            assert str(caught.value).startswith("worker ")
    finally:
        for worker, folder in before.items():
            workers.run(os.chdir, folder, workers=[worker])
    assert not Workspace.at(mine / "work").holds_parts()
