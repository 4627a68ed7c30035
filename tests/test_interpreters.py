"""Other versions of Python that ``.ci/run`` finds on a machine."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "interpreters"


def stand_in(path: Path, says: str, code: int = 0) -> str:
    """Write a program that answers as an interpreter does that is asked for its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def found(folder: Path) -> list[str]:
    environment = os.environ | {"PATH": f"{folder}/bin:/usr/bin:/bin", "PYENV_ROOT": f"{folder}/pyenv"}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with ``python3`` of version 3.11 on its path."""
    stand_in(tmp_path / "bin" / "python3", "3.11 ")
    for version in ("3.12", "3.13", "3.14"):
        # This machine may have them on what is left of the path.
        stand_in(tmp_path / "bin" / f"python{version}", "not here", 127)
    return tmp_path


def test_a_machine_without_others(machine: Path) -> None:
    assert found(machine) == []


def test_one_of_each_version_is_taken(machine: Path) -> None:
    versions = machine / "pyenv" / "versions"
    on_path = stand_in(machine / "bin" / "python3.14", "3.14 ")
    stand_in(versions / "3.14.0" / "bin" / "python", "3.14 ")
    stand_in(versions / "3.12.9" / "bin" / "python", "3.12 ")
    newest = stand_in(versions / "3.12.10" / "bin" / "python", "3.12 ")
    stand_in(versions / "3.11.9" / "bin" / "python", "3.11 ")
    assert found(machine) == [f"3.12 {newest}", f"3.14 {on_path}"]


def test_one_without_the_global_lock_is_left_out(machine: Path) -> None:
    versions = machine / "pyenv" / "versions"
    stand_in(versions / "3.13.0t" / "bin" / "python", "3.13 1")
    assert found(machine) == []
    usual = stand_in(versions / "3.13.0" / "bin" / "python", "3.13 ")
    assert found(machine) == [f"3.13 {usual}"]


def test_the_version_of_the_main_one_is_tested_already(machine: Path) -> None:
    stand_in(machine / "bin" / "python3", "3.12 ")
    stand_in(machine / "pyenv" / "versions" / "3.12.1" / "bin" / "python", "3.12 ")
    assert found(machine) == []


def test_an_interpreter_of_another_version_than_its_name_is_left_out(machine: Path) -> None:
    """Asked as it is: the one that runs this test."""
    path = machine / "bin" / "python3.12"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    assert found(machine) == ([f"3.12 {path}"] if sys.version_info[:2] == (3, 12) else [])
