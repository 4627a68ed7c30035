"""Run tests of the fast command against every fault of the catalogue: ``python -m tests.mutations [AREA ...]``.

Each fault is put into a copy of the checkout.  The tests that mirror the changed module run first, then those of its
folder, then all others; the first failure ends the run, so a fault that is found takes seconds.  These are tests of the
fast command, so it finds what they find.  A test finds a fault if it fails with it and passes without it.  Before, all
tests are collected, and those of the folders run, once without any fault.  The exit code is 1 if a fault is not found,
or if that run fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from reid_dist.core.environment import usable_cores
from tests.mutations.catalogue import MUTATIONS, Mutation

_ROOT = Path(__file__).resolve().parents[2]
_COPIED = (
    ".ci",
    "reid_dist",
    "tests",
    "pipelines",
    "cluster_configs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "pyproject.toml",
)
# A fault may make a loop endless; the fast tests have a limit of their own, which takes longer.
_TEST_LIMIT_S = 120
_PASSED, _NOTHING_RUN = 0, 5
_BY = _OWN, _REST, _ESCAPED = ("own", "rest", "escaped")
_T = TypeVar("_T")


def main(areas: list[str]) -> int:
    """Print one line per fault, and per area how many were found; return the exit code."""
    chosen = [mutation for mutation in MUTATIONS if not areas or mutation.area in areas]
    if importlib.util.find_spec("torch") is None:
        print("without torch, tests of devices are skipped: their faults are left out")
        chosen = [mutation for mutation in chosen if mutation.area != "device"]
    if not chosen:
        print(f"no such area; areas: {', '.join(dict.fromkeys(each.area for each in MUTATIONS))}")
        return 2
    jobs = usable_cores()
    # Copies take the machine code along: their tests would wait for compilation otherwise.
    subprocess.run([sys.executable, "-m", "reid_dist.cli", "compile"], cwd=_ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(min(jobs, len(chosen))):
            copies.put(_copy_to(Path(folder, str(number))))

        def with_a_copy(work: Callable[[Path], _T]) -> _T:
            copy = copies.get()
            try:
                return work(copy)
            finally:
                copies.put(copy)

        def outcome(mutation: Mutation) -> str:
            began = time.monotonic()
            by, test = with_a_copy(lambda copy: _finder(copy, mutation))
            # A fault may be the removal of a line.
            changed = mutation.after.strip() or f"without {mutation.before.strip()}"
            place = f"{mutation.module}: {changed.splitlines()[0].strip()}"
            print(f"{mutation.area:12}  {time.monotonic() - began:5.0f} s  {by:8}  {place}\n    {test}", flush=True)
            return by

        with ThreadPoolExecutor(jobs) as pool:
            folders = dict.fromkeys(_nearest_tests(_ROOT, mutation.module)[-1] for mutation in chosen)
            without = [["tests", "--collect-only"], *([folder] for folder in folders)]
            failing = [*pool.map(lambda tests: with_a_copy(lambda copy: _failure(copy, tests)), without)]
            if any(failing):
                print(f"these fail without a fault: {', '.join(test for test in failing if test)}")
                return 1
            found = list(pool.map(outcome, chosen))
    print(f"{'area':12}  faults  {'  '.join(_BY)}")
    for area in dict.fromkeys(mutation.area for mutation in chosen):
        counts = Counter(by for by, mutation in zip(found, chosen, strict=True) if mutation.area == area)
        print(f"{area:12}  {counts.total():6}  {'  '.join(f'{counts[by]:{len(by)}}' for by in _BY)}")
    return int(_ESCAPED in found)


def _copy_to(folder: Path) -> Path:
    folder.mkdir()
    for name in _COPIED:
        source, target = _ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    # Some tests call git; without a repository they would fail with any fault.
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@contextmanager
def _applied(copy: Path, mutation: Mutation) -> Iterator[None]:
    file = copy / "reid_dist" / mutation.module
    text, state = file.read_text(), file.stat()
    file.write_text(text.replace(mutation.before, mutation.after))
    try:
        yield
    finally:
        file.write_text(text)
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))


def _finder(copy: Path, mutation: Mutation) -> tuple[str, str]:
    """Find a test that fails because of a fault: whether it is of the area, and its name."""
    near = _nearest_tests(copy, mutation.module)
    unsteady: list[str] = []
    for by, tests, passed in ((_OWN, near, []), (_REST, ["tests"], near[-1:])):
        for step in tests:
            ignored = [f"--ignore={each}" for each in passed]
            while test := _failure_with(copy, mutation, [step, *ignored, *(f"--deselect={each}" for each in unsteady)]):
                if not _failure(copy, [test]):
                    return by, test
                if test in (*unsteady, step):
                    return _ESCAPED, f"{test} fails without the fault, too"
                unsteady.append(test)
    return _ESCAPED, "all tests pass" + "".join(f"; {each} fails without the fault, too" for each in unsteady)


def _failure_with(copy: Path, mutation: Mutation, tests: list[str]) -> str | None:
    """First of some tests that fails with a fault, as `_failure`."""
    with _applied(copy, mutation):
        return _failure(copy, tests)


def _failure(copy: Path, tests: list[str]) -> str | None:
    """First of some tests that fails, or what else ended them; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, f"--timeout={_TEST_LIMIT_S}", "--deselect=tests/mutations", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode in (_PASSED, _NOTHING_RUN):
        return None
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    # A name may hold blanks; what follows it is the error.
    return failed[0].partition(" ")[2].partition(" - ")[0] if failed else tests[0]


def _nearest_tests(copy: Path, module: str) -> list[str]:
    """Test file of a module and the folders around it, nearest first, as far as they exist."""
    place = Path("tests", module)
    wanted = [place.with_name(f"test_{place.name}"), *list(place.parents)[:-2]]
    return [str(each) for each in wanted if (copy / each).exists()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
