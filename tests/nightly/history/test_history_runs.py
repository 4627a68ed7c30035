"""Round trip of runs through a history, and the queries of the gates."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from history_entries import ALARMED, BAD, GOOD, NAME, SLOW, entry_of, failed_entry, record, reported, small_report

from reid_dist._version import __version__
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.nightly.history import History, Past
from reid_dist.nightly.history.history_values import Estimate, Run, this_host
from reid_dist.reports import TopK


def test_a_run_is_read_as_it_was_written(history: History, path: Path) -> None:
    number = history.begin(
        "market", "digest", folder="nightly", started="2026-05-09T02:00:00Z", planned=[NAME, "vit/market1501/reranked"]
    )
    other = "vit/market1501/reranked"
    history.add(number, entry_of(findings=(BAD, SLOW)), None)
    history.add(number, failed_entry(other), None)
    assert number == 1
    expected = Run(
        number=1, suite="market", suite_digest="digest", started="2026-05-09T02:00:00Z", host=this_host(),
        pid=os.getpid(), version=__version__, folder="nightly",
        entries=(entry_of(findings=(BAD, SLOW)), failed_entry(other)), planned=(NAME, other),
        seen=history.run(1).seen,
    )  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(expected.seen))
    assert history.run(1) == expected
    with History.open(path, create=False, read_only=True) as reader:
        assert reader.runs() == [expected]
    history.finish(1, 3)
    finished = history.run(1).finished
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(finished))
    assert history.runs() == [replace(expected, finished=finished, exit_code=3)]


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 0.0, float("inf"), float(np.nextafter(0.5, 1)), float("nan")]
)
def test_metrics_are_read_in_their_order_and_to_the_bit(history: History, value: float) -> None:
    written = {f"CMC@{rank}": Estimate(value, value, 1.0) for rank in (10, 1, 5)}
    labels = {"z": "1", "a": "2", "m": "3"}
    number = record(history, entry_of(metrics=written, labels=labels))
    (entry,) = history.run(number).entries
    # What is not a number is None.
    expected = Estimate(None, None, 1.0) if np.isnan(value) else written["CMC@1"]
    assert repr(list(entry.metrics.items())) == repr([(name, expected) for name in written])
    assert list(entry.labels) == list(labels)


def test_text_that_is_not_unicode_and_quotes_are_only_text(history: History) -> None:
    failed = replace(failed_entry(), reason="cannot read '\udcff.zarr'\nand more\0")
    record(history, failed, suite="mar'ket\"; DROP TABLE runs; --", folder=os.fsdecode(b"n\xffght"))
    run = history.run(1)
    assert run.suite == "mar'ket\"; DROP TABLE runs; --"
    assert run.folder == "n\\udcffght"
    assert run.entries[0].reason == "cannot read '\\udcff.zarr'\nand more\0"


def test_names_are_unique_in_a_run(history: History) -> None:
    first, _ = (record(history, entry_of()) for _ in range(2))
    with pytest.raises(InputError, match=f"run {first} has an entry {NAME} already"):
        history.add(first, failed_entry(), None)
    assert history.run(first).entries == (entry_of(),)


def test_errors_for_missing_runs_and_entries_list_the_existing_ones(history: History) -> None:
    with pytest.raises(StoreNotFoundError, match=r"no run 1 in history .*: it is empty"):
        history.run(1)
    record(history, entry_of())
    for call in (lambda: history.run(9), lambda: history.finish(9, 0), lambda: history.add(9, entry_of(), None)):
        with pytest.raises(StoreNotFoundError, match=r"no run 9 in history .*: it has runs 1 to 1"):
            call()
    for call in (
        lambda: history.report(1, "a/b/c"),
        lambda: history.accept(1, "a/b/c", "so"),
    ):
        with pytest.raises(StoreNotFoundError, match=f"no entry 'a/b/c'; it has {NAME}"):
            call()


def test_runs_are_chosen_by_suite_number_and_name(history: History) -> None:
    for suite in ("market", "veri", "market", "market"):
        record(history, entry_of(), entry_of(name="a/b/c"), suite=suite)
    assert [run.number for run in history.runs()] == [1, 2, 3, 4]
    assert [run.number for run in history.runs(suite="market")] == [1, 3, 4]
    assert [run.number for run in history.runs(suite="market", last=2)] == [3, 4]
    assert history.runs(suite="other") == []
    assert [entry.name for run in history.runs(name="a/b/c", last=3) for entry in run.entries] == ["a/b/c"] * 3
    assert [run.number for run in history.runs(suite="market", before=4, last=1)] == [3]
    assert history.runs(before=1) == []


def test_runs_come_newest_first_however_many_there_are(history: History) -> None:
    for night in range(15):
        record(history, entry_of(), suite="market" if night % 3 else "veri")
    assert list(history.newest_first()) == history.runs()[::-1]
    of_one = history.newest_first(suite="market", name=NAME, before=14)
    assert [run.number for run in of_one] == [12, 11, 9, 8, 6, 5, 3, 2]
    assert list(history.newest_first(suite="other")) == []


def test_the_last_good_entry_is_neither_worse_nor_alarmed_nor_failed_nor_of_another_suite(history: History) -> None:
    assert history.last_good("market", NAME, before=99) is None
    good, slow, bad, alarmed = (
        record(history, entry_of(findings=findings)) for findings in ((GOOD,), (GOOD, SLOW), (BAD,), (ALARMED,))
    )
    failed = record(history, failed_entry())
    record(history, entry_of(findings=(GOOD,)), suite="veri")
    assert [history.last_good("market", NAME, before=at) for at in (good, slow)] == [
        None,
        Past(good, history.run(good).entries[0]),
    ]
    past = history.last_good("market", NAME, before=99)
    assert past is not None
    assert past.run == slow
    assert past.entry.findings == (GOOD, SLOW)
    assert history.last_good("market", "a/b/c", before=99) is None
    assert history.accept(bad, NAME, "a smaller model, on purpose") == 1
    past = history.last_good("market", NAME, before=99)
    assert past is not None
    assert (past.run, past.entry.accepted) == (bad, "a smaller model, on purpose")
    assert [past.run for past in history.measured("market", NAME, before=99, last=9)] == [good, slow, bad, alarmed]
    assert [past.run for past in history.measured("market", NAME, before=alarmed, last=2)] == [slow, bad]
    with pytest.raises(InputError, match=f"run {failed} has no result"):
        history.accept(failed, NAME, "so")


def test_accepting_a_run_accepts_what_was_done(history: History) -> None:
    number = record(history, entry_of(), entry_of(name="a/b/c"), failed_entry("a/b/d"))
    assert history.accept(number, None, " new test set ") == 2
    assert [entry.accepted for entry in history.run(number).entries] == ["new test set", "new test set", ""]
    assert history.accept(number, "a/b/c", "again") == 1
    assert history.run(number).entries[1].accepted == "again"
    with pytest.raises(InputError, match="the reason to accept"):
        history.accept(number, None, "  ")


def test_the_last_good_entry_may_need_equal_digests(history: History) -> None:
    digests = [{"input_digest": inputs, "job_digest": job} for inputs, job in (("in", "job"), ("in2", "job"))]
    for each, finding in zip((*digests, digests[0]), (GOOD, GOOD, BAD), strict=True):
        record(history, entry_of(**each, findings=(finding,)))
    found = [history.last_good("market", NAME, before=9, **each) for each in digests]
    assert [past and past.run for past in found] == [1, 2]
    assert history.last_good("market", NAME, before=9, input_digest="in2", job_digest="job2") is None
    assert history.last_good("market", NAME, before=1, **digests[0]) is None


def test_a_report_comes_back_whole_but_for_its_nearest_items(history: History) -> None:
    topk = TopK(index=np.zeros((40, 2), np.int64), distance=np.zeros((40, 2)))
    report = small_report(1, metrics={"mAP": 0.5, "EER": float("inf"), "none": float("nan")}, topk=topk)
    kept = history.report(record(history, reported(report)), NAME)
    assert kept.topk is None
    assert kept.result_digest == report.result_digest
    assert kept.to_dict() == replace(report, topk=None).to_dict()
    assert all(np.array_equal(kept.per_query[name], report.per_query[name], equal_nan=name in ("AP", "first_rank"))
               for name in report.per_query)  # fmt: skip


def test_numbers_are_never_used_again(history: History) -> None:
    for _ in range(3):
        record(history)
    assert history.prune(keep=0).runs == (1, 2, 3)
    assert history.begin("market", "") == 4
    assert isinstance(history.run(4), Run)
