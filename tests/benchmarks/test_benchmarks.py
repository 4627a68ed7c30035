"""The benchmarks, tiny: that they run and report, not how fast they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.measure import bare_product, ratio_line, run_process

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("memory", 6),
        ("top", 2),
        ("positives", 8),
        ("store", 4),
        ("scaling", 3),
        ("ten-million", 3),
        ("groups", 24),
        ("extras", 20),
        ("operating", 2),
        ("epochs", 2),
        ("expansion-sweep", 2),
        ("neighbours", 4),
        ("rerank", 3),
        ("rerank-scaling", 4),
        ("rerankers", 9),
        ("million", 5),
        ("million-gnn", 5),
        ("planning", 4),
        ("workers", 6),
        ("scheduler", 3),
        ("gates", 27),
        ("nights", 18),
    ],
)
def test_every_benchmark_runs(
    what: str, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What they import takes seconds, in every process that collects tests.
    from tests.benchmarks.__main__ import main

    monkeypatch.setattr(sys, "argv", ["benchmarks", what, "--scale", "0.004", "--repeats", "1"])
    main()
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) >= lines
    assert all(float(number) > 0 for number in re.findall(r"\d+\.\d+", printed))


@pytest.mark.slow
def test_the_command_has_them_all() -> None:
    from tests.benchmarks.__main__ import KINDS

    words = [sys.executable, "-m", "tests.benchmarks", "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    shown = re.search(r"\{(.*?)\}", done.stdout, re.DOTALL)
    assert shown is not None
    assert "".join(shown[1].split()).split(",") == [*KINDS]


def test_memory_of_children_is_counted() -> None:
    child = "import time; held = bytearray(60_000_000); time.sleep(1)"
    words = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"]
    used = run_process(words, memory_every_s=0.1)
    assert used.peak_bytes > 60_000_000
    assert used.seconds > 1


def test_a_failing_command_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        run_process([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_product_takes_every_column() -> None:
    rng = np.random.default_rng(0)
    assert bare_product(rng.standard_normal((2, 3)).astype(np.float32), np.ones((8193, 3), np.float32)) > 0


def test_ratios_are_taken_run_by_run() -> None:
    assert ratio_line("x", [2.0, 9.0], [1.0, 3.0]).endswith("ratio 2.5 (2 to 3, 2 runs)")
