"""``reid-dist list``: whole records, a line each, one entry in full, and JSON."""

from __future__ import annotations

import io
import json
import sys

import pytest

from reid_dist.cli.list_command import _REGISTRIES, _registry, command
from reid_dist.stores.importers.name_layouts import LAYOUTS


@pytest.mark.parametrize("kind", _REGISTRIES)
def test_all_entries_are_listed_and_none_is_cut(reid_dist, kind: str) -> None:
    done = reid_dist("list", kind)
    assert (done.code, done.err) == (0, "")
    records = json.loads(reid_dist("list", kind, "--json").out)
    assert {entry.name for entry in _registry(kind)} <= {record["name"] for record in records}
    for record, line in zip(records, done.out.splitlines(), strict=True):
        assert line.split("\t") == [record[field] for field in ("name", "summary", "source")]
        assert len(record["source"]) > 3


def test_a_terminal_shows_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    command.main(["distances"], standalone_mode=False)
    head, *rows = terminal.getvalue().strip().splitlines()
    assert head.split() == ["name", "what", "it", "is", "source"]
    assert {"cosine", "euclidean"} <= {row.split()[0] for row in rows if row.strip()}
    assert max(map(len, rows)) <= 100


def test_one_entry_is_shown_in_full(reid_dist) -> None:
    done = reid_dist("list", "layouts", "msmt17")
    assert done.code == 0
    shown = "".join(done.out.split())
    layout = LAYOUTS.get("msmt17")
    for text in (layout.summary, layout.source, layout.patterns[0].pattern):
        assert "".join(text.split()) in shown
    record = json.loads(reid_dist("list", "layouts", "msmt17", "--json").out)
    assert record["patterns"] == [each.pattern for each in layout.patterns]
    assert record["list_sets"] == dict(layout.list_sets)


def test_json_has_no_code(reid_dist) -> None:
    records = json.loads(reid_dist("list", "metrics", "--json").out)
    assert not [value for record in records for value in record.values() if "<function" in str(value)]


def test_an_unknown_entry_names_the_nearest(reid_dist) -> None:
    done = reid_dist("list", "layouts", "msmt1")
    assert (done.code, done.out) == (2, "")
    assert "unknown layout 'msmt1'; did you mean 'msmt17'?" in done.err
