"""The machine and the working directory in a report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reid_dist.core.environment import describe_environment, usable_cores

git_is_there = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    """Output of git, with no settings but those given here."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    person = {f"GIT_{who}_{what}": "nobody" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=kept | own | person, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit on a branch whose name has a slash."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "work/first")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "first")
    return folder


def commit_seen_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.chdir(folder)
    return describe_environment().get("git_commit")


def test_versions_and_machine() -> None:
    found = describe_environment()
    assert found["numpy"] == np.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["cores"] == usable_cores() >= 1
    assert found["cpu"] == describe_environment()["cpu"]
    assert all(isinstance(value, str | int) for value in found.values())


@git_is_there
def test_the_commit_of_a_branch(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file, packed with others, and when the branch has gone on; from a folder within as well."""
    first = git(repository, "rev-parse", "HEAD")
    assert commit_seen_from(repository, monkeypatch) == first
    git(repository, "pack-refs", "--all")
    assert commit_seen_from(repository, monkeypatch) == first
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "second")
    second = git(repository, "rev-parse", "HEAD")
    (repository / "within" / "deeper").mkdir(parents=True)
    for folder in (repository, repository / "within" / "deeper"):
        assert commit_seen_from(folder, monkeypatch) == second != first


@git_is_there
def test_a_commit_without_a_branch(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    assert commit_seen_from(repository, monkeypatch) == git(repository, "rev-parse", "HEAD")


@git_is_there
@pytest.mark.parametrize("packed", [False, True])
def test_a_second_work_tree(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    """Its branch is kept with those of the first, and its own head beside them."""
    other = tmp_path / "other"
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(other))
    git(other, "commit", "--quiet", "--allow-empty", "--message", "there")
    if packed:
        git(repository, "pack-refs", "--all")
    there = git(other, "rev-parse", "HEAD")
    assert commit_seen_from(other, monkeypatch) == there
    assert commit_seen_from(repository, monkeypatch) == git(repository, "rev-parse", "HEAD") != there


@git_is_there
def test_a_branch_without_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    assert commit_seen_from(tmp_path, monkeypatch) is None


@pytest.mark.parametrize(
    "head", [b"", b"ref: refs/heads/none", b"\xff\xfe", b"no commit", b"ref: /etc/hostname", b"0" * 39]
)
def test_what_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """No commit is reported, and no other content of a file."""
    (tmp_path / ".git").mkdir()
    assert commit_seen_from(tmp_path, monkeypatch) is None
    (tmp_path / ".git" / "HEAD").write_bytes(head)
    assert commit_seen_from(tmp_path, monkeypatch) is None


def test_a_directory_that_has_been_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "git_commit" not in describe_environment()
