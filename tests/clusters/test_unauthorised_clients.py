"""Other users of the machine: every port of a run is tried, and no file of it can be entered or outlives it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from held_runs import admitted, assert_closed, held
from support.local_workers import local_cluster


@pytest.mark.slow
def test_an_unauthorised_client_reaches_a_cluster_without_tls() -> None:
    """The attack is one: identity and code, at scheduler, nanny and worker, and pages."""
    with local_cluster(n_workers=1, security=None) as cluster:
        scheduler = int(cluster.scheduler_address.rpartition(":")[2])
        nanny = int(cluster.workers[0].address.rpartition(":")[2])
        (address,) = cluster.scheduler.workers
        worker = int(address.rpartition(":")[2])
        pages = cluster.scheduler.http_server.port
        found = admitted([scheduler, nanny, worker, pages])
    assert {"tcp identity", "tcp run_function"} <= {*found[scheduler]}
    assert {"tcp identity", "tcp run"} <= {*found[nanny]}
    assert {"tcp identity", "tcp run"} <= {*found[worker]}
    assert "page /info/main/workers.html" in found[pages]


@pytest.fixture
def stores(sets) -> tuple[Path, Path]:
    return sets.query, sets.gallery


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_socket()]


@pytest.mark.slow
def test_a_default_run_admits_its_own_processes_only(stores, tmp_path: Path) -> None:
    """Scheduler, two nannies, two workers, and the pages of three."""
    with held(tmp_path, "evaluate", *stores, "--workers", 2, "--output", "out", umask=0) as run:
        processes = run.processes
        assert_closed(processes, at_least=8)
        (own,) = (tmp_path / "t").iterdir()
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        keys = [path for path in _entries(own) if path.suffix == ".pem"]
        assert {path.name for path in keys} == {"ca.pem", "cert.pem", "key.pem"}
        for path in keys:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        scratch = [path for path in _entries(own) if path.name == "dask-scratch-space"]
        assert scratch
        assert all(stat.S_IMODE(path.parent.stat().st_mode) == 0o700 for path in scratch)
        secret = next(path for path in keys if path.name == "key.pem").read_text().splitlines()[1]
        for process in processes:
            for name in ("cmdline", "environ"):
                assert secret.encode() not in Path(f"/proc/{process}/{name}").read_bytes()
        message = run.end()
    assert secret not in message
    assert "tls://" not in message
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["demo", "sweep", "splits", "nightly"])
def test_other_commands_admit_their_own_processes_only(stores, tmp_path: Path, command: str) -> None:
    words: dict[str, tuple[object, ...]] = {
        "demo": ("demo", "--output", "out"),
        "sweep": ("sweep", *stores, "--expand", "aqe", "--k", "0:1", "--workers", 1),
        "splits": ("splits", *stores, "--repeats", 1, "--workers", 1),
        "nightly": ("nightly", "suite.yaml", "--history", "nights.db"),
    }
    (tmp_path / "suite.yaml").write_text(_suite(stores))
    with held(tmp_path, *words[command]) as run:
        assert_closed(run.processes, at_least=3)
        run.end()
    assert list((tmp_path / "t").iterdir()) == []


def _suite(stores: tuple[Path, Path]) -> str:
    query, gallery = stores
    sets = f"datasets:\n  set: {{query: {query}, gallery: {gallery}}}\n"
    return f"suite: small\nmodels:\n  one: {{path: .}}\n{sets}jobs:\n  plain: {{}}\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_keys_and_folders_go_with_the_run(stores, tmp_path: Path, number: signal.Signals) -> None:
    """After SIGKILL, with the next command."""
    with held(tmp_path, "evaluate", *stores, "--workers", 1) as run:
        assert list((tmp_path / "t").rglob("key.pem"))
        processes = run.processes
        run.process.send_signal(number)
        run.process.communicate(timeout=30)
        deadline = time.monotonic() + 20
        while any(each in processes for each in run.processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not run.processes
    if number == signal.SIGKILL:
        assert list((tmp_path / "t").rglob("key.pem"))
        words = [sys.executable, "-m", "reid_dist.cli", "list", "distances"]
        env = {**os.environ, "TMPDIR": str(tmp_path / "t")}
        subprocess.run(words, check=True, capture_output=True, env=env)
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.slow
def test_a_scratch_directory_that_dask_is_set_to(stores, tmp_path: Path) -> None:
    """Where others have made Dask's own directory already, and may write."""
    place = tmp_path / "fast"
    (place / "dask-scratch-space").mkdir(parents=True)
    (place / "dask-scratch-space").chmod(0o777)
    with held(tmp_path, "evaluate", *stores, "--workers", 1, DASK_TEMPORARY_DIRECTORY=str(place)) as run:
        (own,) = (path for path in place.iterdir() if path.name != "dask-scratch-space")
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert list((own / "dask-scratch-space").glob("worker-*"))
        assert list((place / "dask-scratch-space").iterdir()) == []
        run.end()
    assert [path.name for path in place.iterdir()] == ["dask-scratch-space"]
