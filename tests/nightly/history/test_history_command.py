"""``reid-dist history``, and ``compare`` and ``report`` on entries of a history."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from history_entries import ALARMED, BAD, GOOD, NAME, SLOW, entry_of, failed_entry, record, reported, small_report

from reid_dist._version import __version__
from reid_dist.errors import InputError
from reid_dist.nightly.gating.gate_settings import RatioGate
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.history import History
from reid_dist.nightly.history.address import Address, is_address
from reid_dist.nightly.history.history_values import Change, Code, Decider, Estimate, Finding, Outcome, this_host
from reid_dist.reports import Report

OTHER = "vit_large_patch14_384/market1501/reranked_and_expanded"
GOLDEN = Path(__file__).parents[1] / "golden" / "history.txt"
LABELS = {name: small_report(0).per_query[name] for name in ("pid", "camid")}


def report_of(seed: int) -> Report:
    """Reports of the same queries."""
    report = small_report(seed)
    return small_report(seed, per_query=dict(report.per_query) | LABELS)


def refusal(reid_dist, *words: object) -> str:
    """The error of a refused command, which writes nothing else."""
    wrong = reid_dist(*words)
    error: str = wrong.assert_refused()
    assert wrong.err == error
    return error


@pytest.fixture
def nights(path: Path) -> Path:
    """Three nights of two jobs: a good one, a worse one, and one that was killed."""
    with History.open(path) as history:
        for seed, findings in enumerate(([GOOD, SLOW], [BAD], [ALARMED])):
            record(
                history,
                reported(report_of(seed), findings=tuple(findings)),
                failed_entry(OTHER),
                digest="0123456789abcdef0123",
                exit_code=3 + seed if seed < 2 else None,
                started=f"2026-05-0{seed + 1}T02:00:00Z",
                pid=2**22 + 1,
            )
    return path


def test_show_prints_what_the_file_has_in_80_columns(reid_dist, nights: Path) -> None:
    """Write it anew, after a sentence was changed on purpose: ``REID_DIST_WRITE_GOLDEN=1 pytest`` this file."""
    change = Change(
        name="mAP", baseline=0.5, candidate=0.45, difference=-0.0448, low=-0.0597, high=-0.0317,
        verdict=Outcome.UNDECIDED, test=Decider.NIGHTS, p_value=0.5473, level=0.999, n_units=750,
    )  # fmt: skip
    trend = Finding(
        gate="trend", verdict=Outcome.UNDECIDED, code=Code.LINE, facts={"n_results": 9}, baseline=1, changes=(change,)
    )
    waits = [gate(entry_of(), [], RatioGate()) for gate in (gate_speed, gate_memory)]
    with History.open(nights) as history:
        begun = {"started": "2026-05-04T02:00:00Z", "pid": 2**22 + 1}
        record(history, entry_of(findings=(GOOD, trend, *waits), accepted="on purpose"), **begun)
        runs = history.runs()
    fixed = {this_host(): "HOST", __version__: "VERSION"}
    fixed |= {run.finished or run.seen: "2026-05-09T03:00:00Z" for run in runs}
    fixed |= {entry.result_digest[:16]: "RESULT" for run in runs for entry in run.entries if entry.result_digest}
    text = ""
    for words in ((), ("--name", NAME), *((f"#{number}",) for number in (1, 2, 3, 4))):
        address = f"{nights}{words[0]}" if words and words[0].startswith("#") else nights
        shown = reid_dist("history", "show", address, *(() if address != nights else words))
        assert (shown.code, shown.err) == (0, "")
        assert max(map(len, shown.out.splitlines())) <= 80
        text += f"SHOW {' '.join(words)}\n{shown.out}\n"
    for found, name in fixed.items():
        text = text.replace(found, name)
    if os.environ.get("REID_DIST_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_show_chooses_runs_entries_and_metrics(reid_dist, nights: Path) -> None:
    shown = reid_dist("history", "show", nights, "--last", 2, "--name", NAME, "--metric", "CMC@1")
    assert f"entry {NAME}" in shown.out
    assert "mAP" not in shown.out
    rows = [line.split() for line in shown.out.splitlines() if "75.00" in line]
    assert [row[0] for row in rows] == ["2", "3"]
    assert reid_dist("history", "show", nights, "--last", 2, "--name", NAME, "--metric", "rank-1").out == shown.out
    unknown = refusal(reid_dist, "history", "show", nights, "--metric", "mPA")
    assert unknown == "Error: no entry has a metric 'mPA'; there are mAP, CMC@1, undefined\n"


def test_show_is_limited_to_a_month_of_nights_by_default(reid_dist, path: Path) -> None:
    with History.open(path) as history:
        for _ in range(32):
            record(history, failed_entry(), exit_code=3)

    def shown(*words: object) -> list[int]:
        lines = reid_dist("history", "show", path, *words).out.splitlines()
        return [int(line.split()[0]) for line in lines if "exit 3" in line]

    note = "older runs than run 3 are left out; --last N shows more"
    assert shown() == list(range(3, 33))
    assert reid_dist("history", "show", path).out.splitlines()[-1] == note
    for words in (("--last", 32), ("--name", NAME)):
        assert shown(*words) == list(range(1, 33))
        assert "left out" not in reid_dist("history", "show", path, *words).out
    assert shown("--last", 2) == [31, 32]
    assert len(json.loads(reid_dist("history", "show", path, "--json").out)["runs"]) == 32


def test_show_of_an_address_is_of_its_entry_alone(reid_dist, nights: Path) -> None:
    latest = reid_dist("history", "show", f"{nights}#latest:{NAME}")
    assert NAME in latest.out
    assert OTHER not in latest.out
    with History.open(nights) as history:
        empty = record(history)
    assert "entries none" in " ".join(reid_dist("history", "show", f"{nights}#{empty}").out.split())
    missing = refusal(reid_dist, "history", "show", f"{nights}#1:a/b/c")
    assert missing == f"Error: run 1 has no entry 'a/b/c'; it has {NAME}, {OTHER}\n"


def test_show_as_json_is_complete(reid_dist, nights: Path) -> None:
    document = json.loads(reid_dist("history", "show", nights, "--json").out)
    exported = reid_dist("history", "export", nights, "--format", "json").out
    assert document == json.loads(exported)
    assert [run["state"] for run in document["runs"]] == ["finished", "finished", "killed"]
    entry = document["runs"][1]["entries"][0]
    assert entry["name"] == NAME
    assert entry["metrics"]["mAP"]["value"] == report_of(1).metrics["mAP"]
    assert entry["metrics"]["undefined"] == {"value": None, "low": None, "high": None}
    assert entry["findings"][0]["changes"][0]["lost"][0]["candidate"] == 1 / 3
    assert (entry["is_good"], entry["is_regression"]) == (False, True)
    one = json.loads(reid_dist("history", "show", f"{nights}#last-good:{NAME}", "--json").out)
    assert [run["number"] for run in one["runs"]] == [1]
    assert [entry["name"] for entry in one["runs"][0]["entries"]] == [NAME]


def test_an_empty_history_prints_one_line(reid_dist, path: Path) -> None:
    History.open(path).close()
    shown = reid_dist("history", "show", path)
    assert (shown.code, shown.out) == (0, f"history {path} has no run yet; `reid-dist nightly` adds one\n")
    assert json.loads(reid_dist("history", "show", path, "--json").out)["runs"] == []
    assert reid_dist("history", "show", path, "--suite", "veri").out == f"history {path} has no run of suite 'veri'\n"
    assert reid_dist("history", "export", path, "--format", "csv").out.count("\n") == 1
    for words in (("show",), ("accept", "--why", "so")):
        wrong = refusal(reid_dist, "history", *words, f"{path}#latest")
        assert wrong == f"Error: history {path} has no run; see `reid-dist history show {path}`\n"
    assert reid_dist("history", "prune", path, "--keep", 3).out.startswith("removed: 0 runs, 0 entries, 0 reports")


@pytest.mark.slow
def test_csv_and_parquet_hold_the_same_long_table(reid_dist, nights: Path, tmp_path: Path) -> None:
    text = reid_dist("history", "export", nights, "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 3 * (3 + 1)
    assert [row["value"] for row in rows if row["metric"] == "mAP"] == [
        repr(report_of(at).metrics["mAP"]) for at in range(3)
    ]
    assert {row["state"]: row["metric"] for row in rows if row["model"].startswith("vit")} == {"failed": ""}
    output = tmp_path / "table.parquet"
    done = reid_dist("history", "export", nights, "--format", "parquet", "--output", output)
    assert (done.code, done.out) == (0, f"written: {output}\n")
    table = pyarrow.parquet.read_table(output).to_pylist()
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in table] == rows
    (first, *_) = table
    assert (first["run"], first["accuracy"], first["speed"], first["memory"]) == (1, "same", "worse", None)
    assert (first["low"], first["high"], first["peak_bytes"]) == (0.4, 0.6, 3 << 32)


def test_texts_of_a_csv_file_are_no_formulas_and_negative_numbers_are_numbers(reid_dist, path: Path) -> None:
    why = "=cmd|' /C calc'!A0"
    with History.open(path) as history:
        history.accept(record(history, entry_of(metrics={"threshold": Estimate(-0.25)})), None, why)
    (row,) = csv.DictReader(io.StringIO(reid_dist("history", "export", path, "--format", "csv").out))
    assert (row["accepted"], row["value"]) == (f"'{why}", "-0.25")
    document = json.loads(reid_dist("history", "export", path, "--format", "json").out)
    assert document["runs"][0]["entries"][0]["accepted"] == why, "other formats hold the text itself"


def test_control_codes_in_stored_texts_never_reach_the_terminal(reid_dist, path: Path) -> None:
    """A job that failed on a path with an escape sequence, a reason to accept with one, a label, a host, a metric."""
    codes = "\x1b]0;title\x07\x1b[31m\r\x9b2J\u202e"
    with History.open(path) as history:
        done = entry_of(labels={"team": codes, codes: "x"}, metrics={f"mAP{codes}": Estimate(0.5)}, accepted=codes)
        done = replace(done, findings=(replace(BAD, facts={"text": f"lost {codes}"}),))
        failed = replace(failed_entry(OTHER), reason=f"there is no {codes}.zarr")
        record(history, done, failed, suite=f"market{codes}", host=f"host{codes}", folder=f"/nights/{codes}")
    for words in (
        ("show", path),
        ("show", f"{path}#1"),
        ("show", path, "--name", NAME),
        ("show", path, "--metric", "none"),
        ("export", path, "--format", "csv"),
        ("export", path, "--format", "json"),
    ):
        printed = reid_dist("history", *words)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed.out + printed.err), words
        assert "mAP" in printed.out + printed.err


def test_an_export_overwrites_nothing_and_parquet_needs_a_file(reid_dist, nights: Path, tmp_path: Path) -> None:
    output = tmp_path / "table.csv"
    output.write_text("mine")
    wrong = refusal(reid_dist, "history", "export", nights, "--format", "csv", "--output", output)
    assert wrong == f"Error: {output} is there already; choose another --output\n"
    assert output.read_text() == "mine"
    wrong = refusal(reid_dist, "history", "export", nights, "--format", "parquet")
    assert wrong == "Error: parquet is a binary format; name a file with --output\n"
    assert reid_dist("history", "export", nights, "--format", "json", "--output", tmp_path / "new.json").code == 0
    assert len(json.loads((tmp_path / "new.json").read_text())["runs"]) == 3
    assert not [item for item in tmp_path.iterdir() if item.name.endswith(".tmp")]


def test_accept_makes_a_baseline(reid_dist, nights: Path) -> None:
    done = reid_dist("history", "accept", f"{nights}#2:{NAME}", "--why", "smaller model")
    assert (done.code, done.out) == (0, "accepted: 1 entry of run 2\n")
    assert "accepted: smaller model" in " ".join(reid_dist("history", "show", nights, "--name", NAME).out.split())
    with History.open(nights) as history:
        past = history.last_good("market", NAME, before=99)
    assert past is not None
    assert past.run == 2
    assert reid_dist("history", "accept", f"{nights}#latest", "--why", "all").out == "accepted: 1 entry of run 3\n"
    for address, why in ((f"#2:{OTHER}", "so"), ("", "so"), ("#2", " "), ("#7", "so")):
        assert refusal(reid_dist, "history", "accept", f"{nights}{address}", "--why", why)


def test_prune_prints_numbers_of_runs_with_gaps(reid_dist, nights: Path) -> None:
    reid_dist("history", "accept", f"{nights}#3:{NAME}", "--why", "smaller model")
    dry = reid_dist("history", "prune", nights, "--keep", 0, "--dry-run")
    assert dry.out.startswith("would remove: 1 run (2), ")
    assert "kept: run 1, 3, as" in dry.out


def test_prune_prints_what_it_removes(reid_dist, nights: Path) -> None:
    dry = reid_dist("history", "prune", nights, "--keep", 0, "--dry-run")
    assert dry.out.splitlines() == [
        "would remove: 2 runs (2-3), 4 entries, 2 reports",
        "kept: run 1, as a baseline of later nights, or because it is running",
    ]
    for age in ("52000w", "999999w"):
        assert reid_dist("history", "prune", nights, "--older-than", age).out.startswith("removed: 0 runs, 0 entries")
    assert reid_dist("history", "prune", nights, "--keep-reports", 1).out.startswith(
        "removed: 0 runs, 0 entries, 1 rep"
    )
    assert reid_dist("history", "prune", nights, "--keep", 0).out.startswith("removed: 2 runs (2-3), 4 entries, 1 rep")
    assert [reid_dist("history", "prune", nights, *words).code for words in ((), ("--older-than", "soon"))] == [2, 2]


def test_prune_removes_the_reports_of_removed_runs(reid_dist, path: Path, tmp_path: Path) -> None:
    page, elsewhere = tmp_path / "page", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    with History.open(path) as history:
        for job in "abcde":
            record(history, entry_of(report_of(0), job_digest=job), folder=str(page))
        record(history)
    for number in (1, 2, 5):
        (page / "runs" / f"{number:05}" / NAME).mkdir(parents=True)
        (page / "runs" / f"{number:05}" / "link").symlink_to(elsewhere)
    # The third is gone, the fourth is a link.
    (page / "runs" / "00004").symlink_to(elsewhere)
    assert reid_dist("history", "prune", path, "--keep-reports", 1, "--reports").code == 2
    dry = reid_dist("history", "prune", path, "--keep", 1, "--reports", "--dry-run")
    assert "would remove: 3 directories of reports" in dry.out
    assert (page / "runs" / "00001").exists()
    done = reid_dist("history", "prune", path, "--keep", 1, "--reports")
    assert done.code == 0
    assert "removed: 4 runs (1-4)" in done.out
    assert done.out.splitlines()[-2:] == [
        "removed: 2 directories of reports",
        f"left: {page / 'runs' / '00004'}, skipped: symbolic link",
    ]
    assert sorted(each.name for each in (page / "runs").iterdir()) == ["00004", "00005"]
    assert (elsewhere / "mine").read_text() == "mine"


def test_reports_behind_a_link_stay(reid_dist, path: Path, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "other" / "00001").mkdir(parents=True)
    (tmp_path / "page" / "runs").symlink_to(tmp_path / "other")
    with History.open(path) as history:
        record(history, folder=str(tmp_path / "page"))
    assert "skipped: symbolic link" in reid_dist("history", "prune", path, "--keep", 0, "--reports").out
    assert (tmp_path / "other" / "00001").is_dir()


def test_commands_for_two_runs_take_entries_and_directories(reid_dist, nights: Path, tmp_path: Path) -> None:
    report_of(0).save(tmp_path / "first")
    first, second = f"{nights}#last-good:{NAME}", f"{nights}#2:{NAME}"
    for words in (("compare", "--resamples", 200), ("average",)):
        both, mixed = (reid_dist(*words, one, second, "--json") for one in (first, tmp_path / "first"))
        assert both.err == mixed.err == ""
        found, other = (json.loads(each.out)["metrics"]["mAP"] for each in (both, mixed))
        assert found == other
        values = [report_of(number).metrics["mAP"] for number in (0, 1)]
        if words[0] == "compare":
            assert math.isclose(found["difference"], values[1] - values[0])
        else:
            assert found["values"] == values
    table = reid_dist("compare", first, first, "--resamples", 200)
    assert table.code == 0
    assert "nightly.db#last-good:resnet50" in "".join(table.out.split())


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "is a file; name a directory with a report, or an entry: FILE#RUN:model/dataset/job"),
        ("#1", "has 2 entries; name one of"),
        ("#9", "there is no run 9"),
        ("#2:a/b/c", "has no entry 'a/b/c'"),
        (f"#1:{OTHER}", "the job failed"),
        ("#latest:a/b/c", "has no run of 'a/b/c'"),
        ("#newest", "no report in"),
    ],
)
def test_ambiguous_and_invalid_addresses(reid_dist, nights: Path, address: str, words: str) -> None:
    for command in (("compare", f"{nights}#1:{NAME}"), ("average", f"{nights}#1:{NAME}"), ("report",)):
        assert words in refusal(reid_dist, *command, f"{nights}{address}")


def test_report_writes_the_page_of_an_entry_to_its_output(reid_dist, nights: Path, tmp_path: Path) -> None:
    address, output = f"{nights}#2:{NAME}", tmp_path / "page"
    printed, written = reid_dist("report", address), reid_dist("report", address, "--output", output)
    assert f"{100 * report_of(1).metrics['mAP']:.2f}%" in printed.out
    assert written.out.startswith(printed.out)
    assert written.out.endswith(f"written: {output / 'report.html'}\n")
    assert Report.load(output).result_digest == report_of(1).result_digest
    assert "is not empty" in refusal(reid_dist, "report", address, "--output", output)
    assert reid_dist("report", address, address, "--output", tmp_path / "other").code == 2
    assert not (tmp_path / "other").exists()


def test_a_run_of_one_entry_needs_no_name(reid_dist, path: Path) -> None:
    with History.open(path) as history:
        record(history, reported(report_of(0)))
    assert reid_dist("report", f"{path}#latest").code == 0
    assert reid_dist("report", f"{path}#last-good").code == 0


def test_addresses_are_read_from_the_left(tmp_path: Path) -> None:
    assert Address.parse("a#b/n.db#12:m/d/j") == Address(Path("a#b/n.db"), "12", "m/d/j")
    assert Address.parse("n.db#latest") == Address(Path("n.db"), "latest", None)
    assert Address.parse("n.db#last-good:m#1/d:2/j#3:x") == Address(Path("n.db"), "last-good", "m#1/d:2/j#3:x")
    (tmp_path / "run#1").mkdir()
    assert not is_address(tmp_path / "run#1")
    assert is_address(tmp_path / "run#2")
    for wrong in ("n.db", "n.db#", "#1", "n.db#1:", "n.db#1x", f"n.db#{'9' * 30}"):
        with pytest.raises(InputError, match="named FILE#RUN"):
            Address.parse(wrong)


def test_the_leaderboard(reid_dist, nights: Path, tmp_path: Path) -> None:
    # The first night alone is good.
    value = report_of(0).metrics["mAP"]
    words = ("history", "leaderboard", nights, "--metric", "mAP", "--output")
    for suffix, shown in ((".html", f"{100 * value:.2f}"), (".md", f"{100 * value:.2f}"), (".csv", f",{value!r},")):
        output = tmp_path / "new" / f"board{suffix}"
        assert reid_dist(*words, output).out == f"written: {output}\n"
        assert shown in output.read_text()
    assert "is there already" in refusal(reid_dist, *words, output)
    assert ".html, .md, .csv" in refusal(reid_dist, *words, tmp_path / "a.txt")
    wrong = ("--metric", "MRR", "--output", tmp_path / "other.html")
    assert "has an accepted value of MRR" in refusal(reid_dist, *words[:3], *wrong)
