"""The faults fit the package as it is."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import reid_dist
from tests.mutations.__main__ import main
from tests.mutations.catalogue import MUTATIONS

_PACKAGE = Path(reid_dist.__file__).parent


def test_every_fault_changes_one_place() -> None:
    for mutation in MUTATIONS:
        text = (_PACKAGE / mutation.module).read_text()
        assert text.count(mutation.before) == 1, f"{mutation.module} holds this text not once: {mutation.before!r}"
        changed = text.replace(mutation.before, mutation.after)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)), mutation


def test_there_are_six_faults_or_more_in_each_of_twelve_areas() -> None:
    faults = Counter(mutation.area for mutation in MUTATIONS)
    assert len(faults) == 12
    assert min(faults.values()) >= 6


def test_an_unknown_area_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["metric"]) == 2
    assert "areas: kernels, reductions" in capfd.readouterr().out
