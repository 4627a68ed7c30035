"""The house: a module imports only from strictly lower floors, and each floor has its list of third-party packages."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "reid_dist"

# Room (a module, or a folder with all that is in it) -> floor.
FLOORS = {
    "_version": 0,
    "credentials": 0,
    "errors": 0,
    "fingerprint": 0,
    "model": 0,
    "plurals": 0,
    "signals": 0,
    "registry": 1,
    "segments": 1,
    "specs": 1,
    "splitmix": 1,
    "kernels": 1,
    "blas": 1,
    "distances": 2,
    "environment": 2,
    "confidence": 2,
    "ties": 3,
    "curves": 3,
    "ground_truth": 2,
    "judging": 3,
    "listed": 3,
    "metrics": 2,
    "plan": 2,
    "protocols": 2,
    "synthetic": 2,
    "validation": 2,
    "verdicts": 3,
    "workers": 2,
    "yaml_text": 2,
    "clusters": 3,
    "compilation": 3,
    "failures": 3,
    "diagnostics": 4,
    "reductions": 3,
    "stores": 3,
    "checks": 4,
    "parts": 4,
    "no_valid_query": 4,
    "notes": 4,
    "pooling": 4,
    "scorers": 4,
    "progress_bars": 5,
    "sweep": 4,
    "task_graph": 4,
    "calibration": 5,
    "reranking": 5,
    "tasks": 5,
    "breakdowns": 6,
    "graph": 6,
    "reports": 6,
    "verification": 6,
    "answer": 7,
    "threshold_passes": 7,
    "comparison": 7,
    "expansion": 7,
    "history": 7,
    "preload": 7,
    "gating": 8,
    "jobs": 8,
    "question": 8,
    "listed_evaluation": 9,
    "projection": 9,
    "visibility": 9,
    "evaluation": 10,
    "search": 10,
    "ahead": 11,
    "runs": 11,
    "splits": 11,
    "tuning": 11,
    "nightly": 12,
    "cli": 13,
    "__init__": 14,
}

LOWEST = {"numpy"}
ALLOWED = {
    "kernels": LOWEST | {"numba"},
    "validation": {"pydantic"},
    "yaml_text": {"yaml"},
    "clusters": {"dask", "distributed", "pydantic", "yaml"},
    "jobs": {"pydantic", "yaml"},
    "stores": LOWEST | {"blake3", "h5py", "obstore", "pyarrow", "safetensors", "scipy", "zarr", "google_crc32c"},
    "blas": {"threadpoolctl"},
    "progress_bars": {"rich"},
    "task_graph": {"dask", "distributed"},
    "compilation": {"distributed"},
    "failures": {"distributed"},
    "diagnostics": {"distributed"},
    "graph": LOWEST | {"distributed"},
    "reranking": LOWEST | {"distributed", "scipy"},
    "threshold_passes": LOWEST | {"distributed"},
    "evaluation": LOWEST | {"distributed"},
    "projection": LOWEST | {"distributed"},
    "runs": LOWEST | {"distributed"},
    "workers": {"distributed"},
    "search": LOWEST | {"distributed"},
    "visibility": {"distributed"},
    "splits": LOWEST | {"distributed"},
    "tuning": LOWEST | {"distributed"},
    "reports": LOWEST | {"PIL", "jinja2", "markupsafe", "pyarrow", "rich"},
    "history": LOWEST | {"pyarrow"},
    "gating": LOWEST | {"pydantic"},
    "nightly": LOWEST | {"distributed", "jinja2", "markupsafe", "mlflow", "pydantic", "yaml"},
    "cli": {"click", "distributed", "pydantic", "rich"},
}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function, for types or for work."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def breaches(module: str, imported: set[str]) -> list[str]:
    room = room_of(module)
    floor = FLOORS[room]
    wrong = []
    for name in sorted(imported):
        top = name.split(".")[0]
        if top == "reid_dist":
            other = room_of(name)
            if other != room and FLOORS[other] >= floor:
                wrong.append(f"{module} (floor {floor}) imports {name} (floor {FLOORS[other]})")
        elif top not in sys.stdlib_module_names and top not in ALLOWED.get(room, LOWEST):
            wrong.append(
                f"{module} (floor {floor}) imports {top}: {room} may import {sorted(ALLOWED.get(room, LOWEST))}"
            )
    return wrong


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)] = path
    return found


def test_every_room_has_a_floor() -> None:
    assert {room_of(module) for module in modules()} == set(FLOORS)


@pytest.mark.parametrize("module", modules())
def test_imports_come_from_lower_floors(module: str) -> None:
    assert breaches(module, imports_of(modules()[module])) == []


def test_the_rule_bites() -> None:
    assert breaches("reid_dist.kernels.topk", {"dask", "reid_dist.graph", "reid_dist.errors", "numpy", "os"}) == [
        "reid_dist.kernels.topk (floor 1) imports dask: kernels may import ['numba', 'numpy']",
        "reid_dist.kernels.topk (floor 1) imports reid_dist.graph (floor 6)",
    ]
    assert breaches("reid_dist.plan", {"reid_dist.metrics"}) == [
        "reid_dist.plan (floor 2) imports reid_dist.metrics (floor 2)"
    ]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_fit_in_a_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450
