"""Suite files: models x data sets x jobs, and one line for everything that is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.refusals import in_full

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.evaluation.pipelines import read_job
from reid_dist.nightly.suite import Suite, read_suite

ROOT = Path(__file__).parents[2]
SUITES = sorted((ROOT / "pipelines").glob("n*.yaml"))

SMALL: dict[str, Any] = {
    "suite": "small",
    "models": {"a": {"path": "features/a", "labels": {"backbone": "A"}}, "b": {"path": "features/b"}},
    "datasets": {
        "market": {"query": "{path}/q.zarr", "gallery": "{path}/g.zarr", "labels": {"images": "real"}},
        "veri": {"query": "{path}/{dataset}.npz", "gallery": "{path}/{dataset}.npz", "protocol": "no_cameras"},
    },
    "jobs": {"plain": {}, "reranked": {"rerank": "k_reciprocal(k1=3,k2=2)", "protocol": "same_set"}},
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}, sort_keys=False))
    return path


def names(suite: Suite) -> list[str]:
    return [planned.name for planned in suite.planned()]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_suites_that_come_along(path: Path) -> None:
    assert names(read_suite(path))
    assert len(path.read_text().splitlines()) <= 25


def test_there_are_suites() -> None:
    assert {path.stem for path in SUITES} == {"nightly", "nightly_market1501"}


def test_every_model_on_every_data_set_in_every_way(tmp_path: Path) -> None:
    suite = read_suite(written(tmp_path))
    assert names(suite) == [
        f"{model}/{dataset}/{job}" for model in "ab" for dataset in ("market", "veri") for job in ("plain", "reranked")
    ]
    planned = {each.name: each for each in suite.planned()}
    plain = planned["a/market/plain"].pipeline
    assert (plain.query, plain.gallery, plain.protocol) == ("features/a/q.zarr", "features/a/g.zarr", "market1501")
    assert planned["b/veri/plain"].pipeline.query == "features/b/veri.npz"
    assert planned["b/veri/plain"].pipeline.protocol == "no_cameras"
    # Fields of a job override those of its data set.
    assert planned["b/veri/reranked"].pipeline.protocol == "same_set"
    assert planned["b/veri/reranked"].pipeline.rerank == "k_reciprocal(k1=3,k2=2)"
    assert planned["a/market/plain"].labels == {"backbone": "A", "images": "real"}


def test_some_of_them_are_left_out(tmp_path: Path) -> None:
    datasets = {**SMALL["datasets"], "veri": {**SMALL["datasets"]["veri"], "models": ["b"]}}
    jobs = {"plain": None, "reranked": {"rerank": "k_reciprocal", "datasets": ["market"], "models": ["a"]}}
    suite = read_suite(written(tmp_path, datasets=datasets, jobs=jobs))
    assert names(suite) == ["a/market/plain", "a/market/reranked", "b/market/plain", "b/veri/plain"]


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    path = written(tmp_path)
    first = read_suite(path).digest
    path.write_text("# a remark\n" + path.read_text())
    assert read_suite(path).digest == first
    assert read_suite(written(tmp_path, hours=2)).digest != first


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"modles": {}}, ["modles: unknown key", "did you mean 'models'"]),
        ({"models": {}}, ["models: "]),
        ({"models": {"a": {"pth": "x"}}}, ["models.a.pth: unknown key", "did you mean 'path'"]),
        ({"models": {"../a": {}}}, ["models.../a", "match pattern"]),
        ({"jobs": {"plain": {"topk": 0}}}, ["jobs.plain.topk"]),
        ({"jobs": {"plain": {"rernak": "k_reciprocal"}}}, ["jobs.plain.rernak", "did you mean 'rerank'"]),
        ({"jobs": {"plain": {"models": ["c"], "datasets": ["x"]}}}, ["no model 'c'", "no dataset 'x'"]),
        ({"jobs": {"grid": {"sweep": {"k": "0:3"}, "expand": "aqe"}}}, ["jobs.grid.sweep", "single jobs"]),
        (
            {"jobs": {"plain": {"protocol": {"name": "x", "base": "nothing"}}}},
            ["jobs.plain.protocol: unknown protocol 'nothing'"],
        ),
        ({"datasets": {"m": {"query": "{pth}/q", "gallery": "g"}}}, ["datasets.m.query", "unknown placeholder {pth}"]),
        ({"datasets": {"m": {"query": "{path.real}", "gallery": "g"}}}, ["unknown placeholder {path.real}"]),
        ({"datasets": {"m": {"query": "{path!r}", "gallery": "g"}}}, ["unknown placeholder {path}"]),
        ({"datasets": {"m": {"query": "{path", "gallery": "g"}}}, ["datasets.m.query", "write {{ for a brace"]),
        ({"datasets": {"m": {"gallery": "g"}}}, ["datasets.m.query: missing"]),
        (
            {"datasets": {"m": "{path}"}},
            ["datasets.m: must be a mapping of keys to values, found '{path}'"],
        ),
        ({"jobs": {"plain": {"metrics": ["mAPP"]}}}, ["jobs.plain.metrics: ", "did you mean 'mAP'"]),
        ({"jobs": {"plain": {"rerank": "k_reciprocl"}}}, ["did you mean 'k_reciprocal'"]),
        ({"jobs": {"plain": {"expand": "aqe(z=1)"}}}, ["jobs.plain.expand: ", "'z'"]),
        ({"jobs": {"plain": {"distance": "cosin", "protocol": "veri"}}}, ["mean 'cosine'", "unknown protocol 'veri'"]),
        ({"jobs": {"p\n": {}}}, ["match pattern"]),
        ({"jobs": {"plain": {"expand": "aqe"}}}, ["jobs.plain.expand: on data set market: aqe needs the number"]),
        (
            {
                "datasets": {"m": {"query": "q", "gallery": "g", "benchmark": "market1501"}},
                "jobs": {"plain": {"protocol": "no_cameras"}},
            },
            ["jobs.plain.benchmark: on data set m: ", "prescribes protocol"],
        ),
        ({"hours": 0}, ["hours"]),
        ({"gates": {"accuracy": {"minimum_efect": 0.1}}}, ["gates.accuracy.minimum_efect"]),
        ({"jobs": {"plain": {"models": []}, "more": {"datasets": []}}}, ["no job is left"]),
        (
            {"protocl": "market1501"},
            ["protocl: unknown key; known: suite, description, models, datasets, jobs, hours, gates"],
        ),
        ({"gaets": {}}, ["gaets: unknown key, did you mean 'gates'?"]),
        ({"gates": {"acuracy": {}}}, ["gates.acuracy: unknown key, did you mean 'accuracy'?"]),
        (
            {"gates": {"accuracy": {"minimum_efect": 0.1}}},
            ["minimum_efect: unknown key, did you mean 'minimum_effect'?"],
        ),
        ({"prepare_hours": 1}, ["prepare_hours: unknown key there: it is one of the entries of models and datasets"]),
        ({"jobs": {"plain": {"hours": 3}}}, ["jobs.plain.hours: unknown key there: it is one of the whole file"]),
        # A data set may be called as a field is.
        ({"datasets": {"protocol": {"query": "q", "gallery": "g", "rernak": "gnn"}}}, ["did you mean 'rerank'?"]),
        (
            {"jobs": {"plain": {"protocol": {"name": "own", "base": "market1501", "jnk": []}}}},
            ["jnk: unknown key, did you mean 'junk'?"],
        ),
    ],
)
def test_errors_name_the_file_and_every_fault(tmp_path: Path, changes: dict[str, Any], fragment: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        read_suite(written(tmp_path, **changes))
    assert "suite.yaml" in str(raised.value)
    for words in fragment:
        assert words in in_full(raised.value)


def test_two_jobs_with_one_name(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        "suite: x\nmodels: {m: {}}\ndatasets: {d: {query: q, gallery: g}}\njobs:\n  plain: {}\n  plain: {}\n"
    )
    with pytest.raises(InputError, match="'plain' occurs twice, in lines 5 and 6"):
        read_suite(path)


def test_jobs_and_suites_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a single job and no suite; run it with `reid-dist run "):
        read_suite(ROOT / "pipelines" / "demo.yaml")
    with pytest.raises(InputError, match="is a suite of many jobs; run it with `reid-dist nightly "):
        read_job(written(tmp_path))


@pytest.mark.parametrize(("text", "fragment"), [("[1]", "holds no suite"), ("a: [", "is not YAML")])
def test_what_is_no_suite(tmp_path: Path, text: str, fragment: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=fragment):
        read_suite(path)
    with pytest.raises(StoreNotFoundError, match="no suite file"):
        read_suite(tmp_path / "missing.yaml")
