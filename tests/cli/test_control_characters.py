"""Text of files never reaches a terminal with control characters in it: labels, names of arrays, keys, protocols."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate
from reid_dist.core.credentials import without_controls
from reid_dist.core.findings import info
from reid_dist.relevance.protocols import compose_protocol
from reid_dist.reports import Report
from reid_dist.reports.console import print_report

# Clears the screen, colours, rings, sets the title of the window; C1 as one character; reverses text.
EVIL = "a\x1b[2J\x1b[31m\x07\x1b]0;title\x07\x9b31m\u202eb"
CONTROLS = {chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x202E)} - {"\n", "\t"}


class Terminal(io.StringIO):
    """A stream that is a terminal by its own account."""

    def isatty(self) -> bool:
        return True


def controls_in(text: str) -> set[str]:
    return CONTROLS & set(text)


@pytest.fixture(scope="module")
def report() -> Report:
    """An evaluation whose protocol, item ids and notes hold escape sequences."""
    rng = np.random.default_rng(0)
    query, gallery = (
        FeatureSet.from_arrays(rng.standard_normal((n, 4)).astype(np.float32), np.arange(n) % 3, np.arange(n) % 2)
        for n in (6, 30)
    )
    made = evaluate(query, gallery, protocol=compose_protocol("mine", junk=[["pid", "camid"]]))
    made.protocol["name"] = made.distance["definition"] = EVIL
    made.notes.append(info("text", text=EVIL))
    made.counts["n_invalid_by_reason"] = {EVIL: 0}
    return made


def test_controls_go_and_line_breaks_stay() -> None:
    assert controls_in(EVIL) == {"\x1b", "\x07", "\x9b", "\u202e"}
    assert without_controls(f"one\n\t{EVIL}\r") == "one\n\ta[2J[31m]0;title31mb"


def test_the_table_of_a_log_file(report: Report) -> None:
    stream = io.StringIO()
    print_report(report, stream)
    assert not controls_in(stream.getvalue())
    assert "]0;title" in stream.getvalue()


def test_the_table_on_a_terminal_has_only_its_own_styles(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    print_report(report, stream)
    text = stream.getvalue()
    assert "\x1b[1m" in text, "heads are bold"
    assert controls_in(text) == {"\x1b"}
    for sequence in ("\x1b[2J", "\x1b]0;"):
        assert sequence not in text


def test_the_table_of_an_interpreter(report: Report) -> None:
    assert not controls_in(repr(report))


@pytest.mark.parametrize(
    "words",
    [
        ("ingest", "features.npy", "--pids", "pids.txt", "--output", "store.zarr"),
        ("ingest", "source.npz", "--output", "store.zarr"),
        *(("evaluate", "query.zarr", "gallery.zarr", "--cluster", f"{at}.yaml") for at in range(3)),
        *((command, EVIL) for command in ("check", "plan", "report")),
    ],
)
def test_labels_arrays_keys_and_paths_in_errors(reid_dist, tmp_path: Path, monkeypatch, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", np.ones((2, 3), np.float32))
    Path("pids.txt").write_text(f"1\n{EVIL}\n", encoding="utf-8")
    np.savez("source.npz", **{EVIL: np.ones((2, 3), np.float32)})
    for at, text in enumerate(('kind: local\n"\\e[31mworkers": 2\n', 'kind: "\\e[31mlocal"\n', '"\\e[2J": 1\n')):
        Path(f"{at}.yaml").write_text(text)
    done = reid_dist(*words)
    assert done.code == 2
    assert not controls_in(done.err + done.out)


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv", "json", "html"])
def test_a_run_whose_name_is_not_utf8(reid_dist, report: Report, tmp_path: Path, form: str) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\xe2\x80\xaex")
    report.save(folder)
    done = reid_dist("compare", folder, folder, "--format", form, "--resamples", 50)
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert done.out
    reid_dist("compare", folder, folder, "--format", form, "--resamples", 50, "--output", tmp_path / "x")
    assert (tmp_path / "x").stat().st_size > 0
