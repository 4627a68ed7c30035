"""``reid-dist sweep`` as users call it: a table with signs, two files, one clear line for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reid_dist import FeatureSet, sweep_parameters


def test_sweep_prints_and_writes_the_result_of_python(reid_dist, stores, threads, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = reid_dist("sweep", *stores, "--expand", "aqe", "--k", "0:4", "--cluster", threads, "--output", output)
    assert done.code == 0, done.err
    expected = sweep_parameters(*map(FeatureSet.open, stores), expand="aqe", k=range(5))
    assert sorted(path.name for path in output.iterdir()) == ["sweep.html", "sweep.json"]
    document = json.loads((output / "sweep.json").read_text())
    assert document["result_digest"] == expected.result_digest
    head, _, table = done.out.partition("\n\n")
    assert head.splitlines()[:2] == ["out", "market1501 \N{MIDDLE DOT} cosine \N{MIDDLE DOT} aqe"]
    lines = table.splitlines()
    assert lines[0].split() == ["k", "mAP", "(%)", "CMC@1", "(%)", "mINP", "(%)"]
    for number, row in enumerate(expected.rows):
        cells = lines[2 + number].split()
        assert cells[0] == str(number)
        for name, cell in zip(expected.metric_names, cells[1:], strict=True):
            sign = "*" if expected.best[name]["row"] == number else ""
            assert cell == f"{sign}{100 * row['metrics'][name]:.2f}"
    assert expected.result_digest[:16] in done.out
    assert "written to" in lines[-1]
    shown = [line for line in done.err.splitlines() if line.startswith("point ")]
    assert [line.split(",")[0] for line in shown] == [f"point {n}/5: k={5 - n}" for n in range(1, 6)]


@pytest.mark.slow
def test_every_option_reaches_the_sweep(reid_dist, stores, threads, tmp_path: Path) -> None:
    words = ("--rerank", "k_reciprocal", "--k1", "4:8:4", "--k2", "2", "--lambda-value", "0:0.3:0.3")
    words += ("--variant", "zhong,faiss_k1", "--protocol", "no_cameras", "--distance", "euclidean", "--max-rank", 7)
    words += ("--metric", "P@3", "--metric", "mAP", "--chunk-rows", 33, "--workspace", tmp_path / "space")
    done = reid_dist("sweep", *stores, "--cluster", threads, "--json", *words)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    expected = sweep_parameters(
        *map(FeatureSet.open, stores),
        rerank="k_reciprocal",
        k1=[4, 8],
        k2=[2],
        lambda_value=[0, 0.3],
        variant=["zhong", "faiss_k1"],
        protocol="no_cameras",
        distance="euclidean",
        max_rank=7,
        metrics=["P@3", "mAP"],
    )
    assert document["result_digest"] == expected.result_digest
    # A workspace that was named stays.
    assert any(path.name.startswith("neighbours-") for path in (tmp_path / "space").iterdir())


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ((), ("--expand aqe", "neither is given")),
        (("--expand", "aqe", "--rerank", "k_reciprocal", "--k", "1"), ("not both",)),
        (("--expand", "aqe", "--k", "0-10"), ("cannot read k of aqe '0-10'", "as 0:10")),
        (("--expand", "aqe", "--k", "0:1000"), ("1001", "500 points at most")),
        (("--expand", "aqe", "--k", "0:3", "--include-self"), ("include_self", "by item id")),
        (("--expand", "aqe", "--k", "0:3", "--cluster", "nowhere.yaml"), ("nowhere.yaml",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, stores, threads, tmp_path: Path, words, parts) -> None:
    output = tmp_path / "out"
    refused = reid_dist("sweep", *stores, "--cluster", threads, "--output", output, *words)
    refused.assert_refused(*parts)
    assert "point " not in refused.err
    assert not output.exists()


@pytest.fixture
def sweep_pipeline(stores, tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(
        f"query: {stores[0]}\ngallery: {stores[1]}\nmetrics: [mAP]\n"
        "expand: alpha_qe\nsweep: {k: 1:3, alpha: [0, 2]}\n"
    )
    return path


@pytest.mark.slow
def test_a_pipeline_with_a_sweep_runs_it(reid_dist, stores, sweep_pipeline, threads, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = reid_dist("run", sweep_pipeline, "--cluster", threads, "--output", output)
    assert done.code == 0, done.err
    assert f"written to {output}: sweep.html, sweep.json" in done.out
    words = ("--expand", "alpha_qe", "--k", "1,2,3", "--alpha", "0,2", "--metric", "mAP")
    expected = reid_dist("sweep", *stores, *words, "--cluster", threads, "--json")
    found = json.loads((output / "sweep.json").read_text())
    assert len(found["rows"]) == 6
    assert found["result_digest"] == json.loads(expected.out)["result_digest"]


# ------------------------------------------------------------------------------------- directories that are not empty


def test_a_workspace_inside_the_output_directory(reid_dist, stores, threads, tmp_path: Path) -> None:
    """It stays there, beside the files of the report."""
    output = tmp_path / "out"
    words = ("sweep", *stores, "--expand", "aqe", "--k", "0:1", "--cluster", threads)
    done = reid_dist(*words, "--output", output, "--workspace", output / "space", "--json")
    assert done.code == 0, done.err
    assert sorted(path.name for path in output.iterdir()) == ["space", "sweep.html", "sweep.json"]
    assert (output / "sweep.json").read_text() == done.out
    assert any((output / "space").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"), [("sweep", ["--expand", "aqe", "--k", "0:1"]), ("splits", ["--repeats", "2"])]
)
def test_resume_beside_stray_and_temporary_files(
    reid_dist, stores, threads, tmp_path: Path, name: str, words: list[str]
) -> None:
    """Files of other names stay; temporary files of a killed run are removed, in output directory and workspace."""
    output = tmp_path / "out"
    (output / "workspace" / "partials-1").mkdir(parents=True)
    (output / "notes.txt").write_text("mine")
    # Of another host.
    left = [output / f".reid-dist-0123abcd-1-1-{token}.tmp" for token in ("a", "b")]
    left.append(output / "workspace" / "partials-1" / ".reid-dist-0123abcd-1-1-c.tmp")
    for path in left:
        path.write_text("half")
    done = reid_dist(name, *stores, *words, "--cluster", threads, "--output", output, "--resume", "--json")
    assert done.code == 0, done.err
    assert (output / f"{name}.json").read_text() == done.out
    assert (output / "notes.txt").read_text() == "mine"
    assert [path.name for path in left if path.exists()] == []
    again = reid_dist(name, *stores, *words, "--cluster", threads, "--output", output, "--resume", "--json")
    assert again.out == done.out
    assert "point " not in again.err
