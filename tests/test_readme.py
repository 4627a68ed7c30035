"""Every command and snippet of the pages is run here, page by page, in the order in which a newcomer would type it."""

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
from reid_dist.evaluation.benchmarks import BENCHMARKS
from reid_dist.evaluation.pipelines import read_job
from tests.documentation import registries
from tests.documentation.pages import COMMANDS, GUIDES, LANGUAGES, PAGES, ROOT, SNIPPET, blocks, headings, read

README = read("README.md")
TEXT = "\n".join(map(read, PAGES))
RUN = [block for block in blocks(*PAGES) if block.language in (COMMANDS, SNIPPET)]
# Pages with commands or snippets of this package.
RUNNING = sorted({block.page for block in RUN if "reid-dist " in block.text or block.language == SNIPPET})
ON_CLUSTERS = {"evaluate", "run", "splits", "sweep", "nightly"}
SET_UP = "python3 -m venv .venv && .venv/bin/pip install -q "


def commands() -> list[str]:
    return [line for block in RUN if block.language == COMMANDS for line in block.commands]


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


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader has after the first command of the README, and the files of their own that pages name."""
    make_demo(tmp_path / "reid-dist-demo")
    make_named(tmp_path)
    for folder in ("pipelines", "cluster_configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUNNING)
def test_commands_and_snippets_run_in_order(page: str, workplace: Path, reid_dist: Any) -> None:
    """As they stand; those of the README run on clusters of their own the first time, all others on threads."""
    ran: list[str] = []
    names: dict[str, Any] = {"__name__": "page"}
    for block in RUN:
        if block.page != page:
            continue
        if block.language == SNIPPET:
            exec(compile(block.text, f"{page}, line {block.line}", "exec"), names)
            continue
        for command in block.commands:
            program, *words = shlex.split(command)
            if program != "reid-dist":
                continue
            names_none = words[0] in ON_CLUSTERS and "--cluster" not in words
            in_threads = names_none and (page != "README.md" or words[0] in ran)
            done = reid_dist(*words, *(["--cluster", "cluster_configs/threads.yaml"] if in_threads else []))
            assert done.code == 0, f"{page}, line {block.line}: {command}\n{done.err}"
            ran.append(words[0])
            if "--output" in words:
                assert (workplace / words[words.index("--output") + 1]).exists(), command
    if page == "README.md":
        report = json.loads((workplace / "results" / "mine" / "report.json").read_text())
        assert names["report"].metrics["mAP"] == report["metrics"]["mAP"]


def test_every_block_is_run_by_a_test() -> None:
    """Blocks of other languages than these would be run by none; excerpts are those of `test_recipes.py`."""
    wrong = [f"{block.page}, line {block.line}" for block in blocks(*PAGES) if block.language not in LANGUAGES]
    assert wrong == []
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pipelines").glob("*.md")}
    found |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*.md")} - {"CHANGELOG.md"}
    assert found <= set(PAGES)


def test_no_two_pages_write_to_one_place() -> None:
    """Pages are read one after the other, and a run does not take the place of another."""
    pages: dict[str, set[str]] = {}
    for block in RUN:
        for found in re.finditer(r'(?:--output |--static |\.save\("|FeatureWriter\(")([^\s"]+)', block.text):
            pages.setdefault(found[1], set()).add(block.page)
    assert len(pages) > 40
    assert {place: found for place, found in pages.items() if len(found) > 1} == {}


def test_commands_on_files_of_your_own_are_marked(tmp_path: Path) -> None:
    """All others run on the data of the demo, or on what earlier commands of the page have written."""
    make_named(tmp_path)
    own, marked = {path.name for path in tmp_path.iterdir()}, set()
    for block in RUN:
        named = own & set(shlex.split(block.text)) if block.language == COMMANDS else set()
        if named:
            before = "\n".join(read(block.page).splitlines()[: block.line - 1])
            assert "of your own" in before.rstrip().rpartition("\n\n")[2], block
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
    benchmarks = read("tests/benchmarks/test_benchmarks.py")
    for command in others[2:]:
        what = re.fullmatch(r"\.venv/bin/python -m tests\.benchmarks ([\w-]+)", command)
        assert what is not None, command
        assert f'("{what[1]}", ' in benchmarks
    named = set(re.findall(r"`python -m tests\.benchmarks ([\w-]+)", README))
    assert len(named) == 3
    assert all(f'("{name}", ' in benchmarks for name in named)


def test_the_number_of_benchmarks_is_that_of_the_registry() -> None:
    assert f"{len([*BENCHMARKS])} published evaluations by name" in README


@pytest.mark.parametrize("page", PAGES)
def test_links_and_files_exist(page: str) -> None:
    folder, text = (ROOT / page).parent, read(page)
    for target, place in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
        path = (folder / target).resolve() if target else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        if place:
            assert place in headings(path.relative_to(ROOT).as_posix()), f"{page} links to {target}#{place}"
    for path in re.findall(r"`([\w./]+\.(?:py|yaml|json))`", text):
        if "/" in path:
            assert (folder / path).exists() or (ROOT / path).exists(), f"{page} names {path}"


def test_links_to_places_follow_headings() -> None:
    assert {"k-reciprocal", "re-rankers"} & {*headings("pipelines/conventions.md")} == {"re-rankers"}
    assert "average-models-and-splits" in headings("pipelines/comparing.md")


def test_the_readme_and_guides_are_short() -> None:
    assert len(README.splitlines()) <= 150
    for name in GUIDES:
        assert len(read(f"pipelines/{name}.md").splitlines()) <= 150, name


def test_the_page_of_conventions_is_that_of_the_registries() -> None:
    assert registries.PAGE.read_text(encoding="utf-8") == registries.text(), "python -m tests.documentation conventions"


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
    printed = re.search(r"^ mAP +\d+\.\d\d%", done.stdout, re.MULTILINE)
    assert printed is not None, done.stdout
    assert printed[0] in README
    assert (checkout / "reid-dist-demo" / "report.html").stat().st_size > 10_000
    # What the next commands of the README begin with.
    assert f"reid-dist evaluate {Path('reid-dist-demo') / 'data'} " in README
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
