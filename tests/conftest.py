"""What all tests share: how Hypothesis runs, where real features are, one cluster, and the command as users see it."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.processes import COMMAND
from support.sampling import QUICK, THOROUGH, spread_cases
from xdist.scheduler import LoadScopeScheduling

from reid_dist.cli import main
from reid_dist.core.environment import usable_cores

# The first example of a property compiles kernels, so the time of an example means nothing.
_TIMELESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("quick", max_examples=QUICK, derandomize=True, database=None, **_TIMELESS)
settings.register_profile("thorough", max_examples=THOROUGH, derandomize=True, database=None, **_TIMELESS)
settings.register_profile("explore", max_examples=1000, print_blob=True, **_TIMELESS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell starts commands in its background with SIGINT ignored, and programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes that tests start load the bytecode of the package, which lies beside its machine code.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: half a million objects are made, and hardly any can be freed."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, object]:
    """Begin with another folder in each process, so that each rewrites the assertions of some files for all."""
    report = yield
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if collector.path == _TESTS and isinstance(collector, pytest.Dir):
        first = int(number) * len(report.result) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        report.result = report.result[first:] + report.result[:first]
    return report


# What takes seconds to start; the process that gets the first of its tests runs all of them.  The fixtures have these
# words as a parameter, so that they are part of the names of these tests.
_ONE_OF_ALL = ("two_workers", "s3_server", "python_kernels")
_TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases of tests slow: ``quick_cases(n)`` leaves n of those that are not slow already."""
    items.sort(key=lambda item: item.path)  # the same order in every process
    cases = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("quick_cases")
        if marker is not None and item.get_closest_marker("slow") is None:
            cases[item.nodeid.partition("[")[0], marker.args[0]].append(item)
    for (_, n), tests in cases.items():
        quick = spread_cases([test.callspec.params for test in tests], n)
        for place, test in enumerate(tests):
            if place not in quick:
                test.add_marker(pytest.mark.slow)
    # The longest units first, and files of this folder, as that of the README: others would wait for them at the end.
    items.sort(key=lambda item: (not any(word in item.name for word in _ONE_OF_ALL), item.path.parent != _TESTS))


# Of any property: all modules of tests are imported to find it, and Hypothesis collects their constants for it.
_ANY_PROPERTY = "test_segments_are_loops"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Fill the caches of kernels, test modules and constants before a run of all tests.

    Its processes would wait for one another's kernels, and each would do the rest of this work for itself.
    """
    config = session.config
    distributes = not hasattr(config, "workerinput") and config.getoption("numprocesses", default=None)
    if distributes and config.args_source is not pytest.Config.ArgsSource.ARGS:
        one_test = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", _ANY_PROPERTY]
        with subprocess.Popen(one_test, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            subprocess.run([*COMMAND, "compile"], check=False)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """One process runs all tests of a server, of a cluster and, in the fast command, of a file with its fixtures."""
    whole_files = config.getoption("markexpr") == "not slow"

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            test, _, parameters = nodeid.partition("[")
            rest = test.partition("::")[0] if whole_files else nodeid
            return next((word for word in _ONE_OF_ALL if word in parameters), rest)

    return Units(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores, as tests wait for clusters, servers and browsers."""
    return usable_cores() + 1


_SHARED_DATA = _TESTS.parents[1] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data():
    """Path of a file of real features by its name; skips the test where it is absent."""

    def path_of(name):
        path = _SHARED_DATA / name
        if not path.exists():
            pytest.skip(f"real features are not here: {path}")
        return path

    return path_of


@pytest.fixture(scope="session")
def cluster_of_two(tmp_path_factory):
    """A client of two worker processes, one for all tests: each takes seconds to start and to load its kernels."""
    # These imports take a second that most runs of a few tests can do without.
    import dask
    from support.local_workers import started

    with ExitStack() as stack:
        # Between its tests the cluster does little; at Dask's own intervals it takes an eighth of a core.
        with dask.config.set(
            {
                "distributed.admin.system-monitor.interval": "5s",
                "distributed.admin.tick.interval": "2s",
                "distributed.client.heartbeat": "30s",
                "distributed.worker.profile.enabled": False,
                **{f"distributed.worker.memory.{limit}": False for limit in ("target", "spill", "pause", "terminate")},
            }
        ):
            client = stack.enter_context(started(2, tmp_path_factory.mktemp("two-workers")))
        yield client


@pytest.fixture(params=["two_workers"])
def two_workers(cluster_of_two):
    return cluster_of_two


@pytest.fixture(scope="session", params=["python_kernels"])
def python_kernels():
    """A process in which kernels are not compiled."""
    from support.python_kernels import PythonKernels

    process = PythonKernels()
    yield process
    process.close()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def assert_refused(self, *parts: str, code: int = 2) -> str:
        """Exit code, nothing on standard output, and at the end one error, with its details, that contains the parts.

        Returns the error.
        """
        assert (self.code, self.out) == (code, ""), self
        assert "Traceback" not in self.err
        start = re.search("^Error: ", self.err, re.MULTILINE)
        assert start is not None
        message = self.err[start.start() :]
        assert all(line.startswith("  ") for line in message.splitlines()[1:])
        for part in parts:
            assert part in message
        return message


@pytest.fixture
def reid_dist(capfd: pytest.CaptureFixture[str]):
    """Call ``reid-dist`` in this process."""

    def call(*words: object) -> Outcome:
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(int(left.value.code or 0), captured.out, captured.err)

    return call
