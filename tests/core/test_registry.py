"""Registries whose definitions are made by modules."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from reid_dist.core.registry import Registry
from reid_dist.errors import UnknownNameError


@dataclass(frozen=True)
class Named:
    name: str
    summary: str = ""
    source: str = ""


SHARED: dict[str, Registry[Named]] = {}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Named]:
    """A registry of two modules, of which one registers two definitions."""
    for module, names in (("registered_later", ["c"]), ("registered_first", ["b", "a"])):
        lines = ["from test_registry import SHARED, Named", *(f"SHARED['it'].register(Named({x!r}))" for x in names)]
        (tmp_path / f"{module}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_registry", sys.modules[__name__])
    for module in ("registered_later", "registered_first"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    SHARED["it"] = Registry("letter", ["registered_first", "registered_later"])
    return SHARED["it"]


def test_modules_are_imported_in_order_at_the_first_look_up(registry: Registry[Named]) -> None:
    assert "registered_first" not in sys.modules
    assert registry.names() == ["b", "a", "c"]


def test_threads_that_look_up_at_once_find_all(registry: Registry[Named], tmp_path: Path) -> None:
    for path in tmp_path.glob("registered_*.py"):
        path.write_text(f"import time\ntime.sleep(0.2)\n{path.read_text()}")
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda _: registry.names(), range(4))] == [["b", "a", "c"]] * 4


@pytest.mark.parametrize(
    "look_up", [lambda it: it.get("c").name == "c", lambda it: "c" in it, lambda it: len(it) == 3, lambda it: [*it][2]]
)
def test_any_look_up_imports_them(registry: Registry[Named], look_up) -> None:
    assert look_up(registry)


def test_an_unknown_name_lists_the_names_of_modules(registry: Registry[Named]) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown letter 'd'; .*known: a, b, c"):
        registry.get("d")


def test_a_name_is_defined_once(registry: Registry[Named]) -> None:
    registry.register(Named("z"))
    with pytest.raises(ValueError, match="letter 'z' is defined twice"):
        registry.register(Named("z"))
