"""Every option of ``reid-dist evaluate``: the answer that Python gives, or one line that says what is wrong."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, Report, evaluate, evaluate_distances, evaluate_lists
from reid_dist.cli import main
from reid_dist.metrics.definitions import METRICS
from reid_dist.relevance.protocols import PROTOCOLS

N_QUERY, N_GALLERY = 24, 120


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Stores with item ids and clothes, labels alone, distances, and ground truth in both forms."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(81)
    centres = rng.integers(-2, 3, (8, 5))
    labels = {}
    for role, n in (("query", N_QUERY), ("gallery", N_GALLERY)):
        pids = rng.integers(1, 9, n)
        # Whole numbers, hence ties; and queries whose identity the gallery lacks.
        features = (centres[pids - 1] + rng.integers(-1, 2, (n, 5))).astype(np.float32)
        pids = np.where(np.arange(n) % 6 == 5, pids + 100, pids) if role == "query" else pids
        labels |= {f"{role}_pids": pids, f"{role}_camids": rng.integers(0, 3, n)}
        FeatureSet.from_arrays(
            features, pids, labels[f"{role}_camids"], [f"{role}_{i:03}" for i in range(n)],
            columns={"clothes": rng.integers(0, 2, n)}, allow_zero=True,
        ).save(folder / f"{role}.zarr")  # fmt: skip
    np.savez(folder / "labels.npz", **labels)
    np.save(folder / "block.npy", rng.integers(0, 9, (N_QUERY, N_GALLERY)).astype(np.float16))
    names = ("good", "ok", "junk")
    place = rng.choice(4, (N_QUERY, N_GALLERY), p=[0.1, 0.1, 0.1, 0.7])
    truth = [{name: np.flatnonzero(row == i).tolist() for i, name in enumerate(names)} for row in place]
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "other.json").write_text(json.dumps([{**entry, "ok": []} for entry in truth]))
    (folder / "truth").mkdir()
    for i, entry in enumerate(truth):
        (folder / "truth" / f"set_{i:03}_query.txt").write_text(f"query_{i:03} 0 0 10 10\n")
        for name, rows in entry.items():
            text = "".join(f"gallery_{row:03}\n" for row in rows)
            (folder / "truth" / f"set_{i:03}_{name}.txt").write_text(text)
    return folder


@pytest.fixture
def run(reid_dist, data, threads):
    """Call ``reid-dist evaluate`` on the stores, or on labels alone where something takes the features' place."""

    def call(*words, sides=None):
        if sides is None:
            alone = {"--distances", "--lists"} & set(map(str, words))
            sides = ["labels.npz"] * 2 if alone else ["query.zarr", "gallery.zarr"]
        return reid_dist("evaluate", *(data / side for side in sides), "--cluster", threads, *words)

    return call


@pytest.fixture
def answer(run):
    """The report of a call as a dict."""

    def call(*words, **options):
        done = run(*words, "--json", **options)
        assert done.code == 0, done.err
        return json.loads(done.out)

    return call


@pytest.fixture
def refused(run):
    """Call, and hold the refusal against its form: exit code 2, nothing on standard output, one line."""

    def call(*words, **options):
        done = run(*words, **options)
        assert done.code == 2, done
        assert done.out == ""
        assert "Traceback" not in done.err
        (line,) = (line for line in done.err.splitlines() if line.startswith("Error: "))
        assert done.err.rstrip().endswith(line)
        return line

    return call


def open_sets(data):
    return FeatureSet.open(data / "query.zarr"), FeatureSet.open(data / "gallery.zarr")


def open_labels(data):
    with np.load(data / "labels.npz") as arrays:
        return tuple(LabelledRows(arrays[f"{role}_pids"], arrays[f"{role}_camids"]) for role in ("query", "gallery"))


# -------------------------------------------------------------------------------------------- the answer of Python

OPTIONS = {
    "ties": (["--ties"], {"ties": True}),
    "tables": (
        ["--breakdown", "camera", "--breakdown", "camera_pair", "--breakdown", "clothes", "--breakdown", "identity"],
        {"breakdowns": ["camera", "camera_pair", "clothes", "identity"]},
    ),
    "sizes": (
        ["--breakdown", "gallery_size", "--gallery-size", "10", "--gallery-size", "0.5", "--gallery-size", "1.0"],
        {"breakdowns": ["gallery_size"], "gallery_sizes": [10, 0.5, 1.0]},
    ),
    "one_row": (
        ["--breakdown", "gallery_size", "--gallery-size", "1"],
        {"breakdowns": ["gallery_size"], "gallery_sizes": [1]},
    ),
    "order": (
        ["--breakdown", "gallery_size", "--gallery-order", "random", "--seed", "3"],
        {"breakdowns": ["gallery_size"], "gallery_order": "random", "seed": 3},
    ),
    "verification": (
        ["--roc", "--metric", "TAR@FAR=0.01", "--metric", "EER", "--metric", "DIR@FAR=0.1", "--metric", "mAP"],
        {"roc": True, "metrics": ["TAR@FAR=0.01", "EER", "DIR@FAR=0.1", "mAP"]},
    ),
    "single_shot": (["--protocol", "cuhk03"], {"protocol": "cuhk03"}),
    "draws": (
        ["--protocol", "cuhk03", "--single-shot-draws", "10", "--seed", "5"],
        {"protocol": "cuhk03", "single_shot_draws": 10, "seed": 5},
    ),
    "curves": (["--max-rank", "7", "--topk", "5", "--chunk-rows", "11"], {"max_rank": 7, "topk": 5}),
    "intervals": (["--confidence", "0.8", "--seed", "4"], {"confidence": 0.8, "seed": 4}),
}


@pytest.mark.parametrize(("words", "options"), OPTIONS.values(), ids=OPTIONS)
def test_options_of_python(answer, data, words, options):
    found = answer(*words)
    expected = json.loads(evaluate(*open_sets(data), **options).to_json())
    for part in ("result_digest", "ties", "breakdowns", "verification", "confidence", "curves", "protocol", "topk"):
        assert found[part] == expected[part], part
    assert {**found["options"], "metrics": None} == {**expected["options"], "metrics": None}


@pytest.mark.parametrize("form", ["truth.json", "truth"])
def test_ground_truth(answer, data, form):
    """Lists in JSON and a directory of text files are one ground truth."""
    found = answer("--protocol", "oxford", "--ground-truth", data / form)
    truth = json.loads((data / "truth.json").read_text())
    expected = evaluate(*open_sets(data), protocol="oxford", ground_truth=truth)
    assert found["result_digest"] == expected.result_digest
    assert found["protocol"]["ground_truth"]["content_digest"] == expected.protocol["ground_truth"]["content_digest"]


def test_distances(answer, data):
    found = answer("--distances", data / "block.npy", "--ties", "--topk", "3")
    block = DistanceBlock.open(data / "block.npy")
    expected = evaluate_distances(block, *open_labels(data), ties=True, topk=3)
    assert found["result_digest"] == expected.result_digest
    assert found["topk"]["digest"] == expected.topk.digest
    assert found["distance"]["name"] == "given"
    assert found["inputs"]["distances"]["content_digest"] == block.content_digest
    # Stores give their labels, and their features are not read.
    stores = answer("--distances", data / "block.npy", sides=["query.zarr", "gallery.zarr"])
    assert stores["result_digest"] == answer("--distances", data / "block.npy")["result_digest"]


def test_lists_of_an_earlier_run(answer, run, data, tmp_path):
    earlier = answer("--topk", "10", "--output", tmp_path / "earlier")
    lists = tmp_path / "earlier" / "topk.npz"
    found = answer("--lists", lists)
    with np.load(lists) as arrays:
        expected = evaluate_lists(arrays["index"], *open_labels(data))
    assert found["result_digest"] == expected.result_digest
    assert {"mAP", "mINP"} <= set(found["bounds"])
    for name, (low, high) in found["bounds"].items():
        assert low <= earlier["metrics"][name] <= high
    for name, value in found["metrics"].items():
        assert value == earlier["metrics"][name]
    printed = run("--lists", lists).out
    assert "between" in printed
    assert "lists of length 10" in printed


def test_sides_in_files_of_their_own(answer, data, tmp_path):
    """Labels by their plain names, one file for each side, and an index without distances."""
    with np.load(data / "labels.npz") as arrays:
        for role in ("query", "gallery"):
            np.savez(tmp_path / f"{role}.npz", pids=arrays[f"{role}_pids"], camids=arrays[f"{role}_camids"])
    sides = [tmp_path / "query.npz", tmp_path / "gallery.npz"]
    found = answer("--distances", data / "block.npy", sides=sides)
    assert found["result_digest"] == answer("--distances", data / "block.npy")["result_digest"]
    index = np.argsort(np.load(data / "block.npy"), axis=1, kind="stable")
    np.savez(tmp_path / "lists.npz", index=index)
    assert answer("--lists", tmp_path / "lists.npz", sides=sides)["metrics"] == found["metrics"]


def test_what_is_printed(run):
    done = run("--ties", "--breakdown", "camera", "--breakdown", "gallery_size", "--metric", "mAP", "--metric", "EER")
    text = " ".join(done.out.split())
    for part in ("mAP", "EER", "genuine pairs", "camera", "gallery_size", "optimistic", "intervals"):
        assert part in text, part


# ------------------------------------------------------------------------------------------------------- pictures


@pytest.fixture(scope="module")
def pictured(data):
    """Stores whose items have images, tiny ones of one colour each."""
    image = pytest.importorskip("PIL.Image")
    folder = data / "pictured"
    (folder / "images").mkdir(parents=True)
    for role in ("query", "gallery"):
        items = FeatureSet.open(data / f"{role}.zarr")
        paths = [f"images/{role}_{i}.png" for i in range(items.n_rows)]
        for i, path in enumerate(paths):
            image.new("RGB", (4, 8), (i, 2 * i, 100)).save(folder / path)
        features = items.read(0, items.n_rows)
        FeatureSet.from_arrays(
            features, items.pids, items.camids, image_paths=paths, allow_zero=True
        ).save(folder / f"{role}.zarr")  # fmt: skip
    return folder


def pictured_sides(pictured):
    return [pictured / "query.zarr", pictured / "gallery.zarr"]


def test_pictures_of_the_hardest_queries(run, pictured, tmp_path):
    words = ("--pictures", "hardest", "--topk", "6", "--image-root", pictured, "--output", tmp_path / "out")
    assert run(*words, sides=pictured_sides(pictured)).code == 0
    report = Report.load(tmp_path / "out")
    shown = report.pictures.queries
    order = np.argsort(report.per_query["AP"], kind="stable")
    assert [each.query.row for each in shown] == order[: len(shown)].tolist()
    assert {each.reason for each in shown} == {"hardest"}
    assert all(item.image for each in shown for item in (each.query, *each.items))
    assert (tmp_path / "out" / "report.html").read_text().count("<img") == sum(1 + len(each.items) for each in shown)


def test_pictures_of_chosen_queries(run, pictured, tmp_path, monkeypatch):
    """They come first; and relative paths start here where nothing else is said."""
    monkeypatch.chdir(pictured)
    words = ("--pictures", "7,2", "--topk", "3", "--output", tmp_path / "out")
    assert run(*words, sides=pictured_sides(pictured)).code == 0
    shown = Report.load(tmp_path / "out").pictures.queries
    assert [(each.query.row, each.reason) for each in shown[:2]] == [(7, "chosen"), (2, "chosen")]
    assert shown[0].query.image


def test_pictures_beside_a_block(run, pictured, data, tmp_path):
    words = ("--distances", data / "block.npy", "--pictures", "hardest", "--topk", "3", "--image-root", pictured)
    assert run(*words, "--output", tmp_path / "out", sides=pictured_sides(pictured)).code == 0
    assert Report.load(tmp_path / "out").pictures.queries[0].query.image


def test_no_images_is_a_note(run, tmp_path):
    assert run("--pictures", "hardest", "--topk", "3", "--output", tmp_path / "out").code == 0
    assert "no image paths" in Report.load(tmp_path / "out").pictures.note


# --------------------------------------------------------------------------------------------------------- resume

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
    """Reports of all jobs, each in a directory of its own, made once."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "threads.yaml").write_text("kind: threads\n")
    for name in JOBS:
        with pytest.raises(SystemExit) as left:
            main(["evaluate", *words_of(name, data, folder)])
        assert not left.value.code
    return folder


def words_of(name, data, folder):
    words = [word.replace("DATA", str(data)) for word in JOBS[name]]
    sides = [str(data / "query.zarr"), str(data / "gallery.zarr")]
    return [*sides, *words, "--cluster", str(folder / "threads.yaml"), "--output", str(folder / name)]


@pytest.mark.parametrize("name", JOBS)
def test_resume_gives_the_report_of_this_job_alone(reid_dist, finished, data, name):
    """The same words give the same report and compute nothing; those of every other job are refused."""
    written = (finished / name / "report.json").read_text()
    for other in JOBS:
        words = [*words_of(other, data, finished)[:-1], str(finished / name), "--resume", "--json"]
        done = reid_dist("evaluate", *words)
        if other == name:
            assert done.out == written
            assert "tasks" not in done.err
        else:
            assert done.code == 2, (name, other)
            assert "holds the report of another job" in done.err, (name, other)
            assert done.out == ""
    assert (finished / name / "report.json").read_text() == written


def test_resume_says_what_differs(reid_dist, finished, data):
    words = [*words_of("ties", data, finished)[:-1], str(finished / "plain"), "--resume"]
    assert "(ties differ)" in reid_dist("evaluate", *words).err
    words = [*words_of("metrics", data, finished)[:-1], str(finished / "plain"), "--resume"]
    assert "(metrics differ)" in reid_dist("evaluate", *words).err
    words = [*words_of("other_truth", data, finished)[:-1], str(finished / "truth"), "--resume"]
    assert "(ground_truth differ)" in reid_dist("evaluate", *words).err


@pytest.mark.parametrize("words", [["--chunk-rows", "13"], ["--gallery-order", "stored"]])
def test_resume_does_not_mind_what_changes_nothing(reid_dist, finished, data, words):
    done = reid_dist("evaluate", *words_of("plain", data, finished), *words, "--resume", "--json")
    assert done.out == (finished / "plain" / "report.json").read_text()


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
        assert f"({name} differ)" in run(*words, "--output", tmp_path / name, "--resume").err
    sides = ["gallery.zarr", "gallery.zarr"]
    done = run("--output", tmp_path / "distances", "--resume", sides=sides)
    assert "query, gallery" in done.err


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

    def run(said, output):
        (tmp_path / "job.yaml").write_text(
            f"query: {data}/query.zarr\ngallery: {data}/gallery.zarr\nconfidence: null\n"
            f"protocol: {{name: mine, summary: s, {parts[said]}}}\n"
        )
        words = ("--cluster", threads, "--output", tmp_path / output, "--resume")
        return reid_dist("run", tmp_path / "job.yaml", *words)

    for output in parts:
        assert run(output, output).code == 0
        for said in parts:
            done = run(said, output)
            assert done.code == (0 if said == output else 2), (said, output)


def test_label_columns_of_labels_alone(answer, data, tmp_path):
    """Columns of one's own in a file of labels break a block down, and are looked at by a protocol of lists."""
    with np.load(data / "labels.npz") as arrays:
        labels = dict(arrays)
    rng = np.random.default_rng(82)
    weather = {"query": rng.integers(0, 3, N_QUERY), "gallery": rng.integers(0, 3, N_GALLERY)}
    labels |= {f"{role}_columns/weather": values for role, values in weather.items()}
    np.savez(tmp_path / "weather.npz", **labels)
    sides = [tmp_path / "weather.npz"] * 2
    report = answer("--distances", data / "block.npy", "--breakdown", "weather", sides=sides)
    rows = [
        LabelledRows(labels[f"{role}_pids"], labels[f"{role}_camids"], columns={"weather": weather[role]})
        for role in ("query", "gallery")
    ]
    block = DistanceBlock.open(data / "block.npy")
    expected = evaluate_distances(block, *rows, breakdowns=["weather"])
    table = report["breakdowns"]["weather"]
    assert table == expected.breakdowns["weather"]
    assert table["value"] == [0, 1, 2]
    assert table["n_query"] == np.bincount(weather["query"]).tolist()
    # The mean of a group, from the values of its queries, which do not depend on columns.
    values = evaluate_distances(block, *open_labels(data)).per_query["AP"]
    for number, mean in enumerate(table["mAP"]):
        assert mean == pytest.approx(np.nanmean(values[weather["query"] == number]), abs=1e-12)


def test_a_protocol_that_looks_at_columns_of_labels_alone(reid_dist, data, threads, tmp_path):
    """Rows of the query's identity and weather are junk, in blocks and in lists."""
    with np.load(data / "labels.npz") as arrays:
        labels = dict(arrays)
    rng = np.random.default_rng(83)
    labels |= {
        "query_columns/weather": rng.integers(0, 2, N_QUERY),
        "gallery_columns/weather": rng.integers(0, 2, N_GALLERY),
    }
    np.savez(tmp_path / "weather.npz", **labels)
    block = np.load(data / "block.npy")
    np.savez(tmp_path / "lists.npz", index=np.argsort(block, axis=1, kind="stable"))
    same_pid = labels["query_pids"][:, None] == labels["gallery_pids"]
    same_weather = labels["query_columns/weather"][:, None] == labels["gallery_columns/weather"]
    expected = (same_pid & same_weather).sum()
    for ranking in (f"distances: {data}/block.npy", f"lists: {tmp_path}/lists.npz"):
        (tmp_path / "job.yaml").write_text(
            f"query: {tmp_path}/weather.npz\ngallery: {tmp_path}/weather.npz\n{ranking}\nmetrics: [mAP, CMC@1]\n"
            "protocol: {name: other_weather, junk: [[pid, weather]]}\n"
        )
        done = reid_dist("run", tmp_path / "job.yaml", "--cluster", threads, "--json")
        assert done.code == 0, done.err
        report = json.loads(done.out)
        assert report["counts"]["n_junk"] == expected > 0
        assert report["counts"]["n_relevant"] == (same_pid & ~same_weather).sum() > 0


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["--breakdown", "camera_pairs"],
            ["unknown breakdown 'camera_pairs'", "did you mean 'camera_pair'", "clothes"],
        ),
        (["--gallery-size", "5"], ["gallery_sizes belong to the breakdown"]),
        (["--breakdown", "gallery_size", "--gallery-size", "half"], ["--gallery-size takes", "found 'half'"]),
        (["--breakdown", "gallery_size", "--gallery-size", "121"], ["from 1 to 120", "found 121"]),
        (["--breakdown", "gallery_size", "--gallery-size", "nan"], ["found nan"]),
        (["--breakdown", "gallery_size", "--gallery-size", "1.5"], ["found 1.5"]),
        (["--gallery-order", "up"], ["'--gallery-order'", "'up'"]),
        (["--gallery-order", "random"], ["--gallery-order random is of the distractor curve", "gallery_size"]),
        (["--breakdown", "camera", "--gallery-order", "random"], ["add --breakdown gallery_size"]),
        (["--topk", "3", "--image-root", "."], ["--image-root is where", "add --pictures"]),
        (["--max-rank", "2000000000"], ["curves over 2,000,000,000 ranks of 24 queries", "smaller --max-rank"]),
        (["--seed", "-1"], ["seed", "found -1"]),
        (["--seed", "18446744073709551616"], ["seed", "found 18446744073709551616"]),
        (["--seed", "1.5"], ["--seed", "'1.5'"]),
        (["--confidence", "1"], ["confidence", "less than 1"]),
        (["--confidence", "0"], ["confidence", "greater than 0"]),
        (["--single-shot-draws", "5"], ["single_shot_draws are for the single-shot CMC"]),
        (["--protocol", "cuhk03", "--single-shot-draws", "0"], ["single_shot_draws", "found 0"]),
        (["--metric", "TAR@FAR=2"], ["TAR@FAR=2", "from 0 to 1"]),
        (["--metric", "TAR"], ["needs a false accept rate"]),
        (["--metric", "DIR@0.1"], ["takes a false accept rate"]),
        (["--metric", "mAP", "--metric", "eer"], ["unknown metric 'eer'"]),
        (["--protocol", "oxford"], ["needs a ground truth", "--ground-truth FILE"]),
        (["--protocol", "oxford", "--ground-truth", "none.json"], ["none.json", "nothing is there"]),
        (["--protocol", "revisitop_easy", "--ground-truth", "DATA/truth.json"], ["easy", "use oxford"]),
        (["--ground-truth", "DATA/truth.json"], ["goes by labels and takes no ground truth"]),
        (["--distances", "none.npy"], ["there is no distance block 'none.npy'"]),
        (["--distances", "DATA/labels.npz"], ["is an archive"]),
        (["--distances", "DATA/truth.json"], ["is no .npy file of distances"]),
        (["--lists", "none.npz"], ["there is no file of lists 'none.npz'"]),
        (["--lists", "DATA/block.npy"], ["is no .npz file of lists"]),
        (["--lists", "DATA/labels.npz"], ["holds no array 'index'"]),
        (["--lists", "DATA/truth.json"], ["is no .npz file of lists"]),
        (["--lists", "DATA"], ["is no .npz file of lists"]),
        (["--lists", "DATA/labels.npz", "--distances", "DATA/block.npy"], ["not from both"]),
        (["--distances", "DATA/block.npy", "--distance", "euclidean"], ["'euclidean' is computed from features"]),
        (["--distances", "DATA/block.npy", "--breakdown", "clothes"], ["unknown breakdown 'clothes'"]),
        (["--pictures", "hardest"], ["ask for topk as well (--topk 10)"]),
        (["--pictures", "some", "--topk", "3"], ["--pictures takes 'hardest' or query rows", "found 'some'"]),
        (["--pictures", "3,", "--topk", "3"], ["found '3,'"]),
        (["--pictures", "3,24", "--topk", "3"], ["query row 24 is none of the 24 queries"]),
        (["--pictures", "-1", "--topk", "3"], ["query row -1 is none"]),
    ],
    ids=lambda part: " ".join(part) if part[0].startswith("--") else "",
)
def test_mistakes_are_answered_in_one_line(refused, data, tmp_path, words, parts):
    line = refused(*(word.replace("DATA", str(data)) for word in words), "--output", tmp_path / "out")
    for part in parts:
        assert part in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--topk", "3"], "--topk writes topk.npz to the output directory; add --output DIR"),
        (["--resume"], "--resume takes up an output directory; add --output DIR"),
        (["--resume", "--json"], "add --output DIR"),
    ],
)
def test_what_needs_an_output_directory(refused, words, part):
    assert part in refused(*words)


def test_lists_without_a_directory_have_a_digest(answer):
    """Which the report as JSON holds."""
    assert answer("--topk", "3")["topk"]["k"] == 3


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--ties"], "ties cannot be had from top-k lists"),
        (["--roc"], "roc cannot be had from top-k lists"),
        (["--topk", "3"], "topk cannot be had from top-k lists"),
        (["--breakdown", "camera"], "breakdowns cannot be had from top-k lists"),
        (["--metric", "mINP"], "metric 'mINP' needs the rank of every query's last positive"),
        (["--metric", "EER"], "metric 'EER' cannot be had from top-k lists"),
        (["--protocol", "cuhk03"], "metric 'CMC_single_shot@1' cannot be had from top-k lists"),
        (["--pictures", "hardest"], "none are found where lists are given"),
    ],
)
def test_what_lists_cannot_answer(refused, tmp_path, words, part):
    np.savez(tmp_path / "lists.npz", index=np.tile(np.arange(5), (N_QUERY, 1)))
    assert part in refused("--lists", tmp_path / "lists.npz", *words, "--output", tmp_path / "out")


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def test_damaged_lists(refused, tmp_path):
    path = tmp_path / "lists.npz"
    np.savez_compressed(path, index=np.tile(np.arange(5), (N_QUERY, 1)))
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"PK\x03\x04", b""):
        path.write_bytes(content)
        assert "is no .npz file of lists" in refused("--lists", path)
    changed = bytearray(whole)
    changed[60:70] = bytes(10)
    path.write_bytes(changed)
    assert "lists" in refused("--lists", path)
    archive(path, index=b"not an array")
    assert "lists" in refused("--lists", path)
    np.savez(path, index=np.array([[None] * 5] * N_QUERY, dtype=object))
    assert "is no .npz file of lists" in refused("--lists", path)
    np.savez(path, index=np.zeros((N_QUERY, 5)))
    assert "must be whole numbers" in refused("--lists", path)
    np.savez(path, index=np.tile(np.arange(5), (7, 1)))
    assert "7 top-k lists for 24 queries" in refused("--lists", path)
    np.savez(path, index=np.tile(np.arange(5), (N_QUERY, 1)), distance=np.zeros((N_QUERY, 4)))
    assert "distances of top-k lists" in refused("--lists", path)


def test_labels_that_do_not_serve(refused, data, tmp_path):
    words = ("--distances", data / "block.npy")
    assert "nothing is there" in refused(*words, sides=["none.npz", "none.npz"])
    np.savez(tmp_path / "nothing.npz", camids=np.zeros(3, int))
    nobody = [tmp_path / "nothing.npz"] * 2
    assert "found no identities of the query side" in refused(*words, sides=nobody)
    np.savez(tmp_path / "short.npz", query_pids=np.ones(3, int), gallery_pids=np.ones(4, int))
    short = [tmp_path / "short.npz"] * 2
    line = refused(*words, "--protocol", "no_cameras", sides=short)
    assert "the distance block is 24 x 120, and there are labels of 3 queries and 4 gallery rows" in line
    np.savez(tmp_path / "uneven.npz", pids=np.ones(5, int), camids=np.ones(4, int))
    assert "camids" in refused(*words, sides=[tmp_path / "uneven.npz"] * 2)


# ----------------------------------------------------------------------------------------------------------- list


@pytest.mark.parametrize(("kind", "registry"), [("metrics", METRICS), ("protocols", PROTOCOLS)])
def test_lists_tell_name_and_source(reid_dist, monkeypatch, kind, registry):
    monkeypatch.setenv("COLUMNS", "400")
    lines = reid_dist("list", kind).out.splitlines()
    for entry in registry:
        (line,) = (line for line in lines if line.split(" ")[0] == entry.name)
        assert entry.summary in line
        assert entry.source in line
        assert len(entry.source) > 3


def test_what_is_new_is_listed(reid_dist):
    metrics = reid_dist("list", "metrics").out
    for name in ("mAP_trapezoid", "mAP@k", "mAP_found@k", "CMC_allshots@k", "CMC_single_shot@k", "P_clipped@k",
                 "TAR@FAR=x", "EER", "DIR@FAR=x"):  # fmt: skip
        assert f"\n{name} " in metrics, name
    protocols = reid_dist("list", "protocols").out
    for name in ("market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras", "oxford", "revisitop_easy",
                 "revisitop_medium", "revisitop_hard"):  # fmt: skip
        assert f"\n{name} " in protocols, name


def test_help_names_every_option(reid_dist):
    text = reid_dist("evaluate", "--help").out
    names = """ties breakdown gallery-size gallery-order single-shot-draws roc seed confidence ground-truth distances
    lists pictures image-root topk"""
    for name in names.split():
        assert f"  --{name} " in text, name
