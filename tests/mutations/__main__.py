"""Run the fast tests against every fault of the catalogue: ``python -m tests.mutations [AREA ...]``.

Each fault is put into a copy of the checkout.  The tests that mirror the changed module run first, then those of its
folder, then all others; the first failure ends the run, so a fault that is found takes seconds.  The exit code is 1 if
a fault is not found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.catalogue import MUTATIONS, Mutation

_ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("reid_dist", "tests", "pipelines", "cluster_configs", "README.md", "CONTRIBUTING.md", "pyproject.toml")
# A fault may make a loop endless; the fast tests have a limit of their own, which takes longer.
_TEST_LIMIT_S = 120
_PASSED, _NOTHING_RUN = 0, 5


def main(areas: list[str]) -> int:
    """Print one line per fault, and how many were found; return the exit code."""
    chosen = [mutation for mutation in MUTATIONS if not areas or mutation.area in areas]
    if not chosen:
        print(f"no such area; areas: {', '.join(dict.fromkeys(each.area for each in MUTATIONS))}")
        return 2
    jobs = max(1, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(min(jobs, len(chosen))):
            copies.put(_copy_to(Path(folder, str(number))))

        def outcome(mutation: Mutation) -> bool:
            copy = copies.get()
            try:
                began = time.monotonic()
                found = _failing_step(copy, mutation)
                line = f"found by {found}" if found else "NOT FOUND"
                place = f"{mutation.module}: {mutation.after.strip().splitlines()[0].strip()}"
                print(f"{mutation.area:12}  {time.monotonic() - began:5.0f} s  {line:40}  {place}", flush=True)
            finally:
                copies.put(copy)
            return found is not None

        with ThreadPoolExecutor(jobs) as pool:
            found = list(pool.map(outcome, chosen))
    print(f"{sum(found)} of {len(found)} faults found")
    return int(not all(found))


def _copy_to(folder: Path) -> Path:
    folder.mkdir()
    for name in _COPIED:
        source, target = _ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target)  # with the machine code of the kernels
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


def _failing_step(copy: Path, mutation: Mutation) -> str | None:
    """Tests that a fault makes fail; None if all pass."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with _applied(copy, mutation), tempfile.TemporaryDirectory(prefix="kernels-") as kernels:
        if mutation.module.startswith("kernels/"):
            # Code of changed kernels must not replace that of the unchanged ones.
            environment["NUMBA_CACHE_DIR"] = kernels
        for step in (*_nearest_tests(copy, mutation.module), "tests"):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
            found = subprocess.run(
                [*command, f"--timeout={_TEST_LIMIT_S}", "--deselect=tests/mutations", step],
                cwd=copy,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if found.returncode not in (_PASSED, _NOTHING_RUN):
                failed = [line for line in found.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return failed[0].split()[1] if failed else f"{step} (exit code {found.returncode})"
    return None


def _nearest_tests(copy: Path, module: str) -> list[str]:
    """Test file of a module and the folders around it, nearest first, as far as they exist."""
    place = Path("tests", module)
    wanted = [place.with_name(f"test_{place.name}"), *list(place.parents)[:-2]]
    return [str(each) for each in wanted if (copy / each).exists()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
