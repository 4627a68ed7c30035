"""``reid-dist table``: console, files, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reid_dist import Report, compare_runs
from reid_dist.core.formatting import TABLE_FORMS


@pytest.fixture
def folders(finished_runs: dict[str, Path]) -> list[Path]:
    return [finished_runs[name] for name in ("weak", "strong")]


def test_console(reid_dist, folders: list[Path]) -> None:
    done = reid_dist("table", *folders, "--metric", "mAP", "--metric", "rank-1", "--intervals")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    for folder in folders:
        value = f"{100 * Report.load(folder).metrics['mAP']:.2f}"
        (line,) = (line for line in done.out.splitlines() if line.startswith(f" {folder.name} "))
        assert value in line
        assert ("*" in line) == (folder.name == "strong")
    assert "CMC@1 (%)" in done.out
    assert "Holm's correction" in " ".join(done.out.split())


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "html", "json"])
def test_files(reid_dist, folders: list[Path], tmp_path: Path, form: str) -> None:
    output = tmp_path / "new" / f"table{TABLE_FORMS[form]}"
    printed = reid_dist("table", *folders, "--format", form)
    assert printed.code == 0
    # The suffix says in which form to write.
    done = reid_dist("table", *folders, "--output", output)
    assert done.code == 0
    assert output.read_text() == printed.out
    assert printed.out != done.out
    table = compare_runs(folders)
    expected = {"markdown": table.to_markdown, "latex": table.to_latex, "csv": table.to_csv, "html": table.to_html,
                "json": table.to_json}[form]()  # fmt: skip
    assert printed.out == expected
    reid_dist("table", *folders, "--output", output).assert_refused("is there already")


def test_refusals(reid_dist, folders: list[Path], tmp_path: Path) -> None:
    reid_dist("table", tmp_path / "no").assert_refused("no")
    reid_dist("table", *folders, "--name", "one").assert_refused("one entry for each of 2 runs, found 1")
    reid_dist("table", *folders, "--metric", "nope").assert_refused("nope")
    outcome = reid_dist("table", *folders, "--output", tmp_path / "x")
    assert outcome.code == 2
    assert "x does not say in which form to write; add --format" in outcome.err
    assert reid_dist("table", *folders, "--json", "--format", "csv").code == 2


def test_the_file_is_named_after_the_table(reid_dist, folders: list[Path], tmp_path: Path) -> None:
    printed = reid_dist("table", *folders).out
    file = tmp_path / "table.tex"
    assert reid_dist("table", *folders, "--output", file).out == f"{printed}\nwritten: {file}\n"
    # Standard output is then JSON and nothing else.
    assert json.loads(reid_dist("table", *folders, "--output", tmp_path / "table.csv", "--json").out)


def test_notes_of_a_level(reid_dist, folders: list[Path]) -> None:
    none, short, full = (
        reid_dist("table", *folders, "--format", "latex", "--notes", level).out for level in ("none", "short", "full")
    )
    assert "footnotesize" not in none
    assert "Holm's correction" in short
    assert "rectangle rule" not in short
    assert "rectangle rule" in full
