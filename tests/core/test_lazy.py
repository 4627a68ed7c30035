"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "reid_dist"
LAZY = sorted(path for path in PACKAGE.rglob("__init__.py") if "lazy_names(" in path.read_text())
NAMES = [".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in LAZY]


def declared(path: Path) -> dict[str, str]:
    """Names that a package imports for type checkers, with their modules."""
    (checked,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    imports = (node for node in checked.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_there_are_some() -> None:
    assert {"reid_dist", "reid_dist.clusters", "reid_dist.stores"} <= {*NAMES}


@pytest.mark.parametrize(("path", "name"), [*zip(LAZY, NAMES, strict=True)], ids=NAMES)
def test_names_are_those_that_type_checkers_see(path: Path, name: str) -> None:
    package = importlib.import_module(name)
    homes = declared(path)
    assert sorted(homes) == dir(package) == sorted({*package.__all__} - {"__version__"})
    for each, module in homes.items():
        assert getattr(package, each) is getattr(importlib.import_module(module), each)


def test_an_unknown_name_is_refused() -> None:
    package = importlib.import_module("reid_dist.stores")
    with pytest.raises(AttributeError, match=r"^module 'reid_dist\.stores' has no attribute 'nothing'$"):
        _ = package.nothing
    with pytest.raises(ImportError, match="nothing"):
        exec("from reid_dist.stores import nothing")


def test_a_module_is_imported_with_the_first_of_its_names() -> None:
    program = (
        "import sys, reid_dist.stores\n"
        "print('reid_dist.stores.featureset' in sys.modules)\n"
        "from reid_dist.stores import FeatureSet\n"
        "print('reid_dist.stores.featureset' in sys.modules, 'reid_dist.stores.importers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "True", "False"]
