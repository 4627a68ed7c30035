"""Layout of the package: levels of its sub-packages, third-party imports, import cycles and names of modules."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "reid_dist"

# A sub-package imports from its own modules and from lower levels.
LEVELS = {
    "_version": -1,
    "errors": -1,
    "core": 0,
    "kernels": 1,
    "relevance": 2,
    "stores": 2,
    "clusters": 3,
    "metrics": 3,
    "engine": 4,
    "reports": 4,
    "stages": 5,
    "evaluation": 6,
    "nightly": 7,
    "compat": 7,
    "torch": 7,
    "cli": 8,
}

THIRD_PARTY = {
    "core": {"numpy", "pydantic", "yaml"},
    "kernels": {"llvmlite", "numba", "numpy"},
    "relevance": {"numpy"},
    "stores": {"blake3", "google_crc32c", "h5py", "numpy", "obstore", "pyarrow", "safetensors", "zarr"},
    "clusters": {"cryptography", "dask", "distributed", "pydantic", "yaml"},
    "metrics": {"numpy"},
    "engine": {"dask", "distributed", "numpy", "threadpoolctl"},
    "reports": {"PIL", "jinja2", "markupsafe", "numpy", "pandas", "pyarrow", "rich"},
    "stages": {"distributed", "numpy", "scipy"},
    "evaluation": {"IPython", "distributed", "numpy", "pydantic", "rich"},
    "nightly": {"distributed", "jinja2", "markupsafe", "mlflow", "numpy", "pyarrow", "pydantic", "yaml"},
    "compat": {"numpy"},
    "torch": {"numpy"},
    "cli": {"click", "distributed", "pydantic", "rich"},
}


def module_paths() -> dict[str, Path]:
    """Path of every module by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


PATHS = module_paths()


def imports_of(source: str, modules: Mapping[str, Path] = PATHS) -> Iterator[tuple[int, str]]:
    """Line and name of every imported module, at the top of a file or in a function, for types or at run time."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            name = node.module or ""
            for alias in node.names:
                inner = f"{name}.{alias.name}"
                yield node.lineno, inner if inner in modules else name


@cache
def all_imports() -> dict[str, list[tuple[int, str]]]:
    """Imports of every module by its name."""
    return {module: list(imports_of(path.read_text())) for module, path in PATHS.items()}


def package_of(module: str) -> str:
    return module.split(".")[1]


def breaches(module: str, imports: list[tuple[int, str]]) -> list[str]:
    """Imports of a module that its level or its list of third-party packages does not allow."""
    package = package_of(module)
    level, allowed = LEVELS[package], THIRD_PARTY.get(package, set())
    wrong = []
    for line, name in imports:
        top = name.split(".")[0]
        if top == "reid_dist":
            other = package_of(name)
            if other != package and LEVELS[other] >= level:
                wrong.append(f"{module}:{line} (level {level}) imports {name} (level {LEVELS[other]})")
        elif top not in sys.stdlib_module_names and top not in allowed:
            wrong.append(f"{module}:{line} imports {top}; {package} may import {sorted(allowed)}")
    return wrong


def first_cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules of an import cycle, the first one again at its end; empty without a cycle."""
    finished: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return []
        path.append(module)
        for other in sorted(edges.get(module, ())):
            if cycle := visit(other):
                return cycle
        finished.add(path.pop())
        return []

    return next((cycle for module in sorted(edges) if (cycle := visit(module))), [])


def test_every_package_has_a_level() -> None:
    assert {package_of(module) for module in PATHS if module != "reid_dist"} == set(LEVELS)


def test_imports_are_of_lower_levels_and_of_listed_packages() -> None:
    assert [each for module in PATHS if module != "reid_dist" for each in breaches(module, all_imports()[module])] == []


def test_no_import_cycle_between_modules() -> None:
    edges = {module: {name for _, name in found if name in PATHS} for module, found in all_imports().items()}
    assert first_cycle(edges) == []


def test_names_of_modules_are_unique() -> None:
    """One concept a module, and one name for it."""
    places: dict[str, list[str]] = {}
    for module, path in PATHS.items():
        if path.name != "__init__.py":
            places.setdefault(path.stem, []).append(module)
    assert [modules for modules in places.values() if len(modules) > 1] == []
    assert not {"utils", "util", "helpers", "common", "misc"} & places.keys()


def test_a_breach_is_found_and_named() -> None:
    source = (
        "import dask\nfrom reid_dist.engine import graph\nfrom reid_dist.errors import InputError\nimport os, numpy\n"
    )
    assert breaches("reid_dist.kernels.topk", list(imports_of(source))) == [
        "reid_dist.kernels.topk:1 imports dask; kernels may import ['llvmlite', 'numba', 'numpy']",
        "reid_dist.kernels.topk:2 (level 1) imports reid_dist.engine.graph (level 4)",
    ]
    same = "def late():\n    from reid_dist.reports import Report\n"
    assert breaches("reid_dist.engine.plan", list(imports_of(same))) == [
        "reid_dist.engine.plan:2 (level 4) imports reid_dist.reports (level 4)"
    ]


def test_a_cycle_is_found_and_named() -> None:
    assert first_cycle({"a": {"b", "d"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert first_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
