"""`reid-dist evaluate --resume`: the report of this job alone, or an error."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from reid_dist.cli import main

# Runs, by words; each pair of them is another job.
JOBS = {
    "plain": [],
    "distance": ["--distance", "euclidean"],
    "metrics": ["--metric", "mAP"],
    "more_metrics": ["--metric", "mAP", "--metric", "EER"],
    "max_rank": ["--max-rank", "7"],
    "topk": ["--topk", "5"],
    "ties": ["--ties"],
    "table": ["--breakdown", "camera"],
    "one_row": ["--breakdown", "gallery_size", "--gallery-size", "1"],
    "all_rows": ["--breakdown", "gallery_size", "--gallery-size", "1.0"],
    "order": ["--breakdown", "gallery_size", "--gallery-size", "1", "--gallery-order", "random"],
    "seed": ["--seed", "1"],
    "confidence": ["--confidence", "0.9"],
    "roc": ["--roc"],
    "protocol": ["--protocol", "cuhk03"],
    "draws": ["--protocol", "cuhk03", "--single-shot-draws", "3"],
    "truth": ["--protocol", "oxford", "--ground-truth", "DATA/truth.json"],
    "other_truth": ["--protocol", "oxford", "--ground-truth", "DATA/other.json"],
    "block": ["--distances", "DATA/block.npy"],
    "pictures": ["--topk", "5", "--pictures", "hardest"],
    "chosen": ["--topk", "5", "--pictures", "1,2"],
    "image_root": ["--topk", "5", "--pictures", "1,2", "--image-root", "elsewhere"],
}


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """The directory of the report of a job, made at its first use."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "threads.yaml").write_text("kind: threads\n")

    def report_of(name):
        if not (folder / name).exists():
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as left:
                main(["evaluate", *words_of(name, data, folder / name)])
            assert not left.value.code
        return folder / name

    return report_of


def words_of(name, data, output):
    words = [word.replace("DATA", str(data)) for word in JOBS[name]]
    sides = [str(data / "query.zarr"), str(data / "gallery.zarr")]
    return [*sides, *words, "--cluster", str(output.parent / "threads.yaml"), "--output", str(output)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", JOBS)
def test_resume_gives_the_report_of_this_job_alone(reid_dist, finished, data, name):
    """The same words give the same report and compute nothing; those of every other job are refused."""
    report = finished(name)
    written = (report / "report.json").read_text()
    for other in JOBS:
        done = reid_dist("evaluate", *words_of(other, data, report), "--resume", "--json")
        if other == name:
            assert done.out == written
            assert "tasks" not in done.err
        else:
            assert done.code == 2, (name, other)
            assert "holds the report of another job" in done.err, (name, other)
            assert done.out == ""
    assert (report / "report.json").read_text() == written


@pytest.mark.parametrize(
    ("name", "other", "parts"),
    [("plain", "ties", "ties"), ("plain", "metrics", "metrics"), ("truth", "other_truth", "ground_truth")],
)
def test_resume_names_the_differences(reid_dist, finished, data, name, other, parts):
    done = reid_dist("evaluate", *words_of(other, data, finished(name)), "--resume")
    assert f"(different {parts})" in done.err


@pytest.mark.parametrize("words", [["--chunk-rows", "13"], ["--gallery-order", "stored"]])
def test_resume_does_not_mind_what_changes_nothing(reid_dist, finished, data, words):
    report = finished("plain")
    done = reid_dist("evaluate", *words_of("plain", data, report), *words, "--resume", "--json")
    assert done.out == (report / "report.json").read_text()


def test_resume_notices_other_content_under_the_same_name(run, data, tmp_path):
    """Distances, lists and sets are compared by what they hold."""
    block = np.load(data / "block.npy")
    np.save(tmp_path / "block.npy", block)
    index = np.argsort(block, axis=1, kind="stable")
    np.savez(tmp_path / "lists.npz", index=index)
    jobs = (["--distances", tmp_path / "block.npy"], ["--lists", tmp_path / "lists.npz"])
    for words, name in zip(jobs, ("distances", "lists"), strict=True):
        assert run(*words, "--output", tmp_path / name).code == 0
        assert run(*words, "--output", tmp_path / name, "--resume").code == 0
    block[3, 4] += 1
    np.save(tmp_path / "block.npy", block)
    index[0, [0, 1]] = index[0, [1, 0]]
    np.savez(tmp_path / "lists.npz", index=index)
    for words, name in zip(jobs, ("distances", "lists"), strict=True):
        assert f"(different {name})" in run(*words, "--output", tmp_path / name, "--resume").err
    sides = ["gallery.zarr", "gallery.zarr"]
    done = run("--output", tmp_path / "distances", "--resume", sides=sides)
    assert "query, gallery" in done.err


@pytest.mark.slow
def test_resume_of_a_protocol_of_parts(reid_dist, data, threads, tmp_path):
    """Parts are compared, not names: those that are left out as well as those that are said."""
    parts = {
        "plain": "base: market1501",
        "rule": "base: market1501, junk: [[pid, camid], [pid, clothes]]",
        "no_junk": "base: market1501, junk_pid: null",
        "query_cameras": "base: market1501, query_cameras: [0, 1]",
        "gallery_cameras": "base: market1501, gallery_cameras: [0, 1]",
        "zero": "base: market1501, invalid_query: counts as 0",
        "reported": "base: market1501, reported: [P@7]",
    }

    def run(message, output):
        (tmp_path / "job.yaml").write_text(
            f"query: {data}/query.zarr\ngallery: {data}/gallery.zarr\nconfidence: null\n"
            f"protocol: {{name: mine, summary: s, {parts[message]}}}\n"
        )
        words = ("--cluster", threads, "--output", tmp_path / output, "--resume")
        return reid_dist("run", tmp_path / "job.yaml", *words)

    for output in parts:
        assert run(output, output).code == 0
        for message in parts:
            done = run(message, output)
            assert done.code == (0 if message == output else 2), (message, output)
