"""Every command of the documents is run here, in the order in which a newcomer would type it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from reid_dist import FeatureSet
from reid_dist.clusters import read_cluster
from reid_dist.evaluation.pipelines import read_job

ROOT = Path(__file__).parents[1]
# In the order in which the README names them.
DOCUMENTS = ["README.md", "pipelines/README.md", "cluster_configs/README.md", "tests/benchmarks/README.md"]
DOCUMENTS += ["reid_dist/README.md", "CONTRIBUTING.md"]
README = (ROOT / "README.md").read_text()
TEXT = "\n".join((ROOT / name).read_text() for name in DOCUMENTS)
ON_CLUSTERS = {"evaluate", "run", "splits", "sweep", "nightly"}
SET_UP = "python3 -m venv .venv && .venv/bin/pip install -q "


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("bash") for line in block.splitlines() if line]


def make_demo(folder: Path) -> None:
    """Write stores where the demo writes its own, which are larger; `test_the_first_command` finds these there."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((12, 16))
    for side, n in (("query", 24), ("gallery", 120)):
        pids = rng.integers(1, 13, n)
        features = (centres[pids - 1] + rng.standard_normal((n, 16))).astype(np.float32)
        FeatureSet.from_arrays(features, pids, rng.integers(1, 5, n)).save(folder / "data" / f"{side}.zarr")


def make_named(folder: Path) -> None:
    """Write features, the names of their images, names of the queries, and lists of MSMT17 for as many rows."""
    rng = np.random.default_rng(1)
    np.save(folder / "features.npy", rng.standard_normal((40, 8)).astype(np.float32))
    pids, camids = rng.integers(1, 6, 40), rng.integers(1, 4, 40)
    sides = ["query" if row < 10 else "bounding_box_test" for row in range(40)]
    names = [f"{pids[row]:04d}_c{camids[row]}s1_{row:06d}_00.jpg" for row in range(40)]
    (folder / "names.txt").write_text("".join(f"{side}/{name}\n" for side, name in zip(sides, names, strict=True)))
    (folder / "query.txt").write_text("".join(f"{name}\n" for name in names[:10]))
    lines = [
        f"{pid:04d}/{pid:04d}_000_{camids[row]:02d}_0303noon_{row:04d}_0.jpg {pid}\n" for row, pid in enumerate(pids)
    ]
    (folder / "list_query.txt").write_text("".join(lines[:10]))
    (folder / "list_gallery.txt").write_text("".join(lines[10:]))
    (folder / "splits.json").write_text(json.dumps([[*range(60)], [*range(60, 120)]]))


def test_the_commands_run_in_order(tmp_path: Path, reid_dist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written; where a command names no cluster, the first one runs on its own and the others on threads."""
    make_demo(tmp_path / "reid-dist-demo")
    make_named(tmp_path)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    (tmp_path / "cluster_configs").symlink_to(ROOT / "cluster_configs")
    monkeypatch.chdir(tmp_path)
    threads = ["--cluster", "cluster_configs/threads.yaml"]
    ran: list[str] = []
    for command in commands():
        if not command.startswith("reid-dist "):
            continue
        words = shlex.split(command)[1:]
        on_threads = words[0] in ran and words[0] in ON_CLUSTERS and "--cluster" not in words
        done = reid_dist(*words, *(threads if on_threads else []))
        assert done.code == 0, f"{command}\n{done.err}"
        ran.append(words[0])
    readme = ["ingest", "check", *["evaluate"] * 3, "compare", "plan", "run", "nightly", "nightly", "history"]
    pipelines = [
        "plan",
        "run",
        "schema",
        "conventions",
        "conventions",
        "evaluate",
        *("list", "evaluate", "evaluate"),
        *("splits", "splits"),
        *("list", "ingest", "ingest", "ingest"),
        *["evaluate"] * 2,
        "browse",
        *["evaluate"] * 2,
        *("average", "table", "thresholds", "thresholds"),
        "run",
        "evaluate",
        "evaluate",
        "sweep",
    ]
    nights = ["nightly", "compare", "history", "history"]
    clusters = ["plan", "run", "schema"]
    assert ran == [*readme, *pipelines, *nights, *clusters]
    first, again = (
        json.loads((tmp_path / "results" / name / "report.json").read_text()) for name in ("market", "again")
    )
    assert first["metrics"]["mAP"] == again["metrics"]["mAP"]

    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "documents", "exec"), names)
    assert names["report"].metrics["mAP"] == first["metrics"]["mAP"]


def test_commands_on_files_of_your_own_are_marked(tmp_path: Path) -> None:
    """All others run on the data of the demo, or on what earlier commands have written."""
    make_named(tmp_path)
    own, marked = {path.name for path in tmp_path.iterdir()}, set()
    for block in re.finditer(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        named = own & set(shlex.split(block[1]))
        paragraph = TEXT[: block.start()].rstrip().rpartition("\n\n")[2]
        if named:
            assert "of your own" in paragraph, block[1]
        marked |= named
    assert marked == own


def test_extras_are_installed_from_the_clone() -> None:
    """The package is on no index, so that its name with an extra is found by pip nowhere else."""
    assert "pip install 'reid-dist[" not in TEXT
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for named in re.findall(r"pip install (?:-q |-p \.venv )*-e '\.\[([\w,]+)\]'", TEXT):
        assert set(named.split(",")) <= set(extras)


def test_every_other_command_has_its_test() -> None:
    others = [command for command in commands() if not command.startswith("reid-dist ")]
    set_up = [
        f"{SET_UP}-e . && .venv/bin/reid-dist demo",
        f"{SET_UP}uv && .venv/bin/uv pip install -q -p .venv -e '.[test]' && .venv/bin/python -m pytest -q",
    ]
    assert others[:2] == set_up
    # The second is what CI runs on a bare machine, the first is `test_the_first_command`.
    assert set_up[1] in (ROOT / ".ci" / "run").read_text()
    benchmarks = (ROOT / "tests" / "benchmarks" / "test_benchmarks.py").read_text()
    for command in others[2:]:
        what = re.fullmatch(r"\.venv/bin/python -m tests\.benchmarks ([\w-]+)", command)
        assert what is not None, command
        assert f'("{what[1]}", ' in benchmarks


def test_links_and_files_exist() -> None:
    for name in DOCUMENTS:
        folder, text = (ROOT / name).parent, (ROOT / name).read_text()
        named = [folder / link for link in re.findall(r"\]\((?!http)([^)#]+)\)", text)]
        for path in re.findall(r"`([\w./]+\.(?:py|yaml|json))`", text):
            named.append(folder / path if (folder / path).exists() else ROOT / path)
        assert [str(path) for path in named if not path.exists() and "/" in str(path.relative_to(ROOT))] == [], name


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200


def test_the_commands_named_in_the_text_exist() -> None:
    known = {path.stem.removesuffix("_command") for path in (ROOT / "reid_dist" / "cli").glob("*_command.py")}
    assert set(re.findall(r"`reid-dist (\w+)", TEXT)) <= known


@pytest.mark.slow
def test_the_first_command(tmp_path: Path) -> None:
    """A clean checkout, a new environment, one command: the demo's page is there, and in under a minute."""
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
    command = commands()[0]
    done = subprocess.run(
        ["bash", "-c", command], cwd=checkout, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    printed = re.search(r"^ mAP +\d+\.\d\d %", done.stdout, re.MULTILINE)
    assert printed is not None, done.stdout
    assert printed[0] in README
    assert (checkout / "reid-dist-demo" / "report.html").stat().st_size > 10_000
    # What the next command of the README begins with.
    assert f"reid-dist ingest {Path('reid-dist-demo') / 'data'} " in README
    for side in ("query", "gallery"):
        assert (checkout / "reid-dist-demo" / "data" / f"{side}.zarr").is_dir()


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines").glob("[!n]*.yaml")), ids=lambda path: path.stem)
def test_every_pipeline_is_a_job_in_few_lines(path: Path) -> None:
    job = read_job(path)
    assert job.description
    assert len(path.read_text().splitlines()) <= 25


@pytest.mark.parametrize("path", sorted((ROOT / "cluster_configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_cluster_file_is_one(path: Path) -> None:
    assert read_cluster(path).kind == yaml.safe_load(path.read_text())["kind"] == path.stem.removesuffix("_cuda")
