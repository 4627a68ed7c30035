"""Workers with other code than the command are refused, also those that join; other packages of theirs are recorded."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dask_processes import dask
from distributed import Client
from support.local_workers import local_cluster

import reid_dist
import reid_dist.clusters.versions as versions
from reid_dist import FeatureSet, evaluate
from reid_dist.core.sources import sources_digest
from reid_dist.errors import ClusterError

VERSION = reid_dist.__version__


def other_version(package: Path) -> None:
    file = package / "_version.py"
    file.write_text(file.read_text().replace(f'"{VERSION}"', '"0.0.7"'))


def other_sources(package: Path) -> None:
    file = package / "relevance" / "protocols.py"
    file.write_text(f"{file.read_text()}\n# Another rule.\n")


def version_before_digests(package: Path) -> None:
    (package / "clusters" / "versions.py").unlink()
    (package / "core" / "sources.py").unlink()


def copied(folder: Path, change: Callable[[Path], None]) -> dict[str, str]:
    """Environment of a worker with a changed copy of the package."""
    package = folder / "other" / "reid_dist"
    shutil.copytree(Path(reid_dist.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    change(package)
    return {"PYTHONPATH": str(package.parent)}


_WORKER = ("worker", "--nthreads", "1", "--no-nanny")


@pytest.mark.slow
@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_version, "runs reid-dist 0.0.7, "),
        (other_sources, f"runs other sources of reid-dist {VERSION} (digest "),
        (version_before_digests, f"runs other sources of reid-dist {VERSION} (an older version)"),
    ],
)
def test_a_worker_with_other_code(evaluate_on, tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    with dask(tmp_path, *_WORKER, env=copied(tmp_path, change)):
        done = evaluate_on(f"kind: existing\nscheduler_file: {tmp_path / 'scheduler.json'}\n")
    done.assert_one_line(
        3, "worker tcp://127.0.0.1:", words, f"the client runs reid-dist {VERSION}", "install the same"
    )
    assert not list((tmp_path / "output").rglob("report.json"))


@pytest.mark.slow
@pytest.mark.usefixtures("scheduler")
def test_a_worker_with_other_code_that_joins_a_run(start_on, larger_sets, tmp_path: Path) -> None:
    other = copied(tmp_path, other_version)
    with dask(tmp_path, *_WORKER) as worker:
        run = start_on(f"kind: existing\nscheduler_file: {tmp_path / 'scheduler.json'}\n", larger_sets)
        run.await_partial_results(1)
        # Else it might have finished by then.
        worker.send_signal(signal.SIGSTOP)
        try:
            with dask(tmp_path, *_WORKER, env=other):
                done = run.end()
        finally:
            worker.send_signal(signal.SIGCONT)
    done.assert_one_line(3, "runs reid-dist 0.0.7", f"the client runs reid-dist {VERSION}")
    assert not list((tmp_path / "output").rglob("report.json"))


def test_a_process_with_other_code_runs_no_task() -> None:
    ran: list[int] = []
    with pytest.raises(ClusterError, match=rf"runs reid-dist {re.escape(VERSION)}, and the client runs reid-dist 9\.1"):
        versions.run_alike(versions.Code("9.1", sources_digest()), "client", ran.append, 1)
    with pytest.raises(ClusterError, match=r"other sources .* \(digest [0-9a-f]{12}\), .* \(digest abcdefabcdef\)"):
        versions.run_alike(versions.Code(VERSION, "abcdefabcdef" * 5), "client", ran.append, 2)
    versions.run_alike(versions.Code(VERSION, sources_digest()), "client", ran.append, 3)
    assert ran == [3]


def claim(name: str, value: object) -> None:
    """Have this worker say that it has something else."""
    setattr(versions, name, value)


def older_packages() -> dict[str, str]:
    return {"python": "3.11.0", "numpy": "1.26.4"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_cluster(n_workers=1, local_directory=str(tmp_path_factory.mktemp("dask"))) as cluster:
        yield cluster.scheduler_address


def test_packages_of_workers_are_recorded_and_their_version_is_compared(sets, address: str) -> None:
    query, gallery = FeatureSet.open(sets.query), FeatureSet.open(sets.gallery)
    with Client(address) as client:
        report = evaluate(query, gallery, client=client)
    assert report.result_digest == sets.digest
    assert "workers" not in report.environment
    with Client(address) as client:
        client.run(claim, "describe_packages", older_packages)
        report = evaluate(query, gallery, client=client)
        assert report.environment["workers"] == [{"n_workers": 1, **older_packages()}]
        assert report.result_digest == sets.digest
        client.run(claim, "__version__", "0.0.7")
        with pytest.raises(ClusterError, match=r"^worker tcp://.*:\d+ runs reid-dist 0\.0\.7, and the client"):
            evaluate(query, gallery, client=client)


def test_the_digest_takes_no_more_than_an_instant() -> None:
    began = time.perf_counter()
    sources_digest.__wrapped__()
    assert time.perf_counter() - began < 1.0
    assert sources_digest() == sources_digest.__wrapped__()
