"""Files of an explorer: pages of data, pictures, folders; what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsed_runs import HOSTILE, N_QUERY, K, make_runs

import reid_dist.reports.browse.site as site_module
from reid_dist import FeatureSet, Report, evaluate, fuse
from reid_dist.core.findings import info
from reid_dist.errors import InputError, StoreExistsError, StoreNotFoundError
from reid_dist.reports.browse import Site, open_subject, write_folder
from reid_dist.reports.browse.site import _shortened


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browsed")
    make_runs(folder)
    return folder


@pytest.fixture(scope="module")
def plain(place: Path) -> Report:
    return Report.load(place / "plain")


def site_of(report: Report, place: Path, **options: Any) -> Site:
    return Site(open_subject(report, image_root=place), **options)


def value(site: Site, name: str) -> Any:
    """The value in a file of data, which is one call."""
    content = site.content(f"data/{name}.js")
    assert content is not None
    called = re.fullmatch(rb'rankedLists\.receive\("([\w-]+)",(.*)\);\n', content, re.DOTALL)
    assert called is not None
    assert called[1].decode() == name
    assert content.isascii()
    return json.loads(called[2])


def test_columns_of_queries(plain: Report, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "QUERY_ROWS", 50)
    site = site_of(plain, place)
    parts = [value(site, f"queries-{at:05d}") for at in range(3)]
    assert site.content("data/queries-00003.js") is None
    joined = {
        name: [*itertools.chain(*(part[name] for part in parts))] for name in parts[0] if parts[0][name] is not None
    }
    run, stored = value(site, "run"), FeatureSet.open(plain.inputs["query"]["uri"])
    assert run["n_query"] == N_QUERY
    assert [run["query"]["pid_names"][pid - 1] for pid in joined["pids"]] == [
        stored.pid_names[pid - 1] for pid in plain.per_query["pid"]
    ]
    assert joined["camids"] == plain.per_query["camid"].tolist()
    expected = plain.per_query["AP"]
    found = np.array([np.nan if each is None else each for each in joined["average"]])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [run["query"]["folder"] + path for path in joined["paths"]] == stored.image_paths.tolist()
    assert joined["reason"] == [run["reasons"].index(reason) for reason in plain.per_query["reason"].tolist()]
    for place_of, (name, _) in enumerate(run["kinds"]):
        assert [bool(flags >> place_of & 1) for flags in joined["kinds"]] == site.subject.failures[name].tolist()


def test_lists(plain: Report, place: Path) -> None:
    site = site_of(plain, place, depth=7)
    topk, gallery = plain.topk, FeatureSet.open(plain.inputs["gallery"]["uri"])
    run = value(site, "run")
    for row in (0, 63, 64, N_QUERY - 1):
        block = value(site, f"lists-{row // 64:05d}")
        places, distances, marks = block["lists"][row % 64]
        rows = [block["rows"][at] for at in places]
        assert rows == topk.index[row, :7].tolist()
        np.testing.assert_allclose(distances, topk.distance[row, :7], rtol=1e-5)
        expected = ["j" if junk else "r" if right else "w"
                    for junk, right in zip(topk.junk[row, :7], topk.relevant[row, :7], strict=True)]  # fmt: skip
        assert list(marks) == expected
        assert [block["pids"][at] for at in places] == gallery.pids[rows].tolist()
        assert [run["gallery"]["folder"] + block["paths"][at] for at in places] == gallery.image_paths[rows].tolist()


def test_distances_are_decimals_of_six_digits() -> None:
    rng = np.random.default_rng(5)
    sizes = 10 ** rng.uniform(-12, 12, 2000) * rng.choice([-1, 1], 2000)
    values = np.concatenate([sizes, rng.random(2000), [0.0, -0.0, 0.5, 1e-308, 5e-324, 1.7e308]])
    found = _shortened(values[None], 6).tolist()
    # Beyond 22 digits, powers of ten are no floats.
    assert found[0][:-3] == [float(f"{value:.6g}") for value in values[:-3].tolist()]
    np.testing.assert_allclose(found[0], values, rtol=5.1e-6, atol=1e-294)
    assert _shortened(np.array([np.nan, np.inf, -np.inf, 2.0], np.float32), 6).tolist() == [None, None, None, 2.0]


def test_numbers_beyond_those_of_a_script_are_texts(plain: Report, place: Path, tmp_path: Path) -> None:
    large = np.where(np.arange(N_QUERY) % 2, 2**60 + 1, 5)
    store = FeatureSet.from_arrays(np.eye(N_QUERY, 8, dtype=np.float32) + 1, large).save(tmp_path / "large.zarr")
    inputs = {**plain.inputs, "query": store.describe()}
    site = site_of(dataclasses.replace(plain, inputs=inputs), place)
    names = value(site, "run")["query"]["pid_names"]
    assert [int(names[pid - 1]) for pid in value(site, "queries-00000")["pids"]] == large.tolist()
    lost = {**inputs, "query": {**inputs["query"], "uri": str(tmp_path / "lost")}}
    site = site_of(dataclasses.replace(plain, inputs=lost, per_query={**plain.per_query, "pid": large}), place)
    names = value(site, "run")["query"]["pid_names"]
    assert [int(names[pid - 1]) for pid in value(site, "queries-00000")["pids"]] == large.tolist()


def test_a_page_has_no_text_as_markup(plain: Report, place: Path) -> None:
    site = site_of(dataclasses.replace(plain, run={"name": HOSTILE}, notes=[info("text", text=HOSTILE)]), place)
    page = site.content("index.html").decode()
    assert "<img" not in page
    assert page.count("&lt;img src=x") >= 2
    assert re.findall(r"<script[^>]*>", page) == ['<script src="browse.js" defer>']
    assert not re.search(r"<[^>]* on\w+=|style=", page)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    "name",
    ["", "../report.json", "data/lists-0.js", "data/lists-00009.js", "data/against-00000.js", "data/run-00000.js",
     "pictures/query/0000/130.jpg", "pictures/query/0001/3.jpg", "pictures/query/0000/03.jpg",
     "pictures/other/0000/3.jpg", "pictures/query/0000/../3.jpg", "browse.js/"],
)  # fmt: skip
def test_other_names_have_no_content(plain: Report, place: Path, name: str) -> None:
    assert site_of(plain, place).content(name) is None


def test_pictures_are_made_once_and_missing_ones_are_none(plain: Report, place: Path, tmp_path: Path) -> None:
    site = site_of(plain, place)
    first = site.content("pictures/query/0000/1.jpg")
    assert first is not None
    assert first.startswith(b"\xff\xd8\xff")
    # Kept: not read again from where they were.
    site.thumbnails._roots = (tmp_path,)
    assert site.content("pictures/query/0000/1.jpg") == first
    assert site.content("pictures/query/0000/2.jpg") is None
    assert site_of(plain, place).content("pictures/query/0000/7.jpg") is None
    assert site_of(plain, place, pictures=False).content("pictures/query/0000/1.jpg") is None


def test_bars_and_hard_queries_of_the_report_lead_to_their_lists(plain: Report, place: Path) -> None:
    values = plain.per_query["AP"].copy()
    # Values at the ends of bins are in one bin each.
    values[:6] = [0.0, 0.05, 0.5, 0.95, 1.0, 0.15]
    report = dataclasses.replace(plain, per_query={**plain.per_query, "AP": values})
    text = (site_of(report, place).content("report.html") or b"").decode()
    bars = re.findall(r'<a href="index.html#low=([\d.]+)&amp;high=([\d.]+)"><path[^>]*><title>[^:]*: (\d+) quer', text)
    # As the explorer selects queries.
    rounded = values.round(6)
    selected = [
        int(np.sum((rounded >= float(low) / 100 - 1e-6) & (rounded <= float(high) / 100 + 1e-6)))
        for low, high, _ in bars
    ]
    assert selected == [int(count) for _, _, count in bars]
    assert sum(selected) == np.isfinite(values).sum()
    rows = re.findall(r'<a href="index.html#q=(\d+)">', text)
    assert [*map(int, rows)] == report.hardest_queries().tolist()
    assert 'href="report.html"' in (site_of(plain, place).content("index.html") or b"").decode()
    # Elsewhere there is no explorer to lead to, and files of charts have no links.
    assert "index.html" not in report.to_html()
    assert text.count("index.html#low") == len(bars)


def test_a_folder_has_the_files_of_the_server(plain: Report, place: Path, tmp_path: Path) -> None:
    site = site_of(plain, place, depth=3)
    target = tmp_path / "new" / "lists"
    note = write_folder(site, target)
    found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert {name: site.content(name) for name in found} == found
    assert set(site.names()) <= set(found)
    stored = {side: FeatureSet.open(plain.inputs[side]["uri"]).image_paths for side in ("query", "gallery")}
    shown = {("query", row) for row in range(N_QUERY)} | {
        ("gallery", row) for row in plain.topk.index[:, :3].ravel().tolist()
    }
    readable = {pair for pair in shown if not stored[pair[0]][pair[1]].endswith("missing.jpg")}
    pictures = {(name.split("/")[1], int(Path(name).stem)) for name in found if name.endswith(".jpg")}
    assert pictures == readable
    assert note.startswith(f"{len(shown) - len(readable)} pictures could not be read; the first: ")
    with pytest.raises(StoreExistsError, match="not empty"):
        write_folder(site, target)


def test_a_failure_leaves_nothing(plain: Report, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of(plain, place, depth=1)

    def full(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(site, tmp_path / "lists", full)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_lists_is_refused_with_the_command_that_makes_them(plain: Report) -> None:
    without = dataclasses.replace(plain, topk=None, run={"command": "reid-dist evaluate q g --output r"})
    with pytest.raises(InputError, match=r"no topk.npz.*--topk 50.*\(this run: reid-dist evaluate q g --output r\)"):
        open_subject(without)


def test_sides_that_were_moved_or_changed(plain: Report, place: Path, tmp_path: Path) -> None:
    moved = {side: {**described, "uri": str(tmp_path / side)} for side, described in plain.inputs.items()}
    lost = dataclasses.replace(plain, inputs=moved)
    subject = open_subject(lost)
    assert (subject.query, subject.gallery) == (None, None)
    assert [note.split(":")[0] for note in subject.notes] == [
        "Labels and pictures of the query are not shown",
        "Labels and pictures of the gallery are not shown",
    ]
    site = Site(subject)
    assert value(site, "queries-00000")["pids"] == plain.per_query["pid"].tolist()
    assert value(site, "lists-00000")["pids"] is None
    assert set(subject.failures) == {"not_listed", "duplicate"}
    found = open_subject(lost, query=place / "query-plain.zarr", gallery=place / "gallery-plain.zarr")
    assert found.notes == ()
    with pytest.raises(StoreNotFoundError):
        open_subject(lost, query=tmp_path / "nowhere")
    with pytest.raises(InputError, match="not those of the query of the run"):
        open_subject(plain, query=place / "gallery-plain.zarr")
    in_memory = {side: {**described, "uri": "memory"} for side, described in plain.inputs.items()}
    assert "it was in memory" in open_subject(dataclasses.replace(plain, inputs=in_memory)).notes[0]


def test_losses_against_another_run(plain: Report, place: Path) -> None:
    other = Report.load(place / "other")
    subject = open_subject(plain, against=other)
    site = Site(subject)
    valid = plain.per_query["reason"] == ""
    expected = np.where(valid, other.per_query["AP"] - plain.per_query["AP"], np.nan)
    found = [np.nan if each is None else each for each in value(site, "queries-00000")["loss"]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    block = value(site, "against-00001")
    assert [block["rows"][at] for at in block["lists"][6][0]] == other.topk.index[70].tolist()
    assert len(block["lists"][0][0]) == K
    short = dataclasses.replace(other, counts={**other.counts, "n_gallery": 3})
    subject = open_subject(plain, against=short)
    assert subject.against.topk is None
    assert any("another gallery" in note for note in subject.notes)
    shuffled = dataclasses.replace(other, per_query={**other.per_query, "pid": other.per_query["pid"][::-1]})
    with pytest.raises(InputError, match="different queries"):
        open_subject(plain, against=shuffled)
    without = {name: values for name, values in other.per_query.items() if name != "AP"}
    with pytest.raises(InputError, match="mAP by query"):
        open_subject(plain, against=dataclasses.replace(other, per_query=without))


def test_labels_of_a_fused_run_are_those_of_its_own_store(place: Path) -> None:
    """The URI of a fused set is no store; the report has that of its labels."""
    sides = [FeatureSet.open(place / f"{side}-plain.zarr") for side in ("query", "gallery")]
    others = [FeatureSet.open(place / f"{side}-other.zarr") for side in ("query", "gallery")]
    both = [fuse(own, [(other, 0.5)]) for own, other in zip(sides, others, strict=True)]
    subject = open_subject(evaluate(*both, topk=3, progress=False))
    assert subject.notes == ()
    assert subject.query is not None
    assert subject.gallery is not None
    assert [subject.query.uri, subject.gallery.uri] == [side.uri for side in sides]
