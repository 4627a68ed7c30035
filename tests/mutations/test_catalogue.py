"""The faults fit the package as it is."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

import reid_dist
from tests.mutations.__main__ import main
from tests.mutations.catalogue import MUTATIONS

_PACKAGE = Path(reid_dist.__file__).parent


def test_every_fault_changes_one_place() -> None:
    for module, faults in groupby(sorted(MUTATIONS, key=attrgetter("module")), attrgetter("module")):
        text = (_PACKAGE / module).read_text()
        right = ast.dump(ast.parse(text))
        for fault in faults:
            assert text.count(fault.before) == 1, f"{module} holds this text not once: {fault.before!r}"
            assert ast.dump(ast.parse(text.replace(fault.before, fault.after))) != right, fault


def test_there_are_six_faults_or_more_in_each_of_thirteen_areas() -> None:
    faults = Counter(mutation.area for mutation in MUTATIONS)
    assert len(faults) == 13
    assert min(faults.values()) >= 6


def test_an_unknown_area_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["metric"]) == 2
    assert "areas: kernels, reductions" in capfd.readouterr().out
