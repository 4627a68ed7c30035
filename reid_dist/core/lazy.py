"""Packages whose public names are imported when they are first used: no command needs all of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reid_dist.core.limits import shortages


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Functions ``__getattr__`` and ``__dir__`` of a package, from the public names of each of its modules."""
    homes = {name: module for module, of_module in names.items() for name in of_module}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with shortages():
            value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        # Found without this function from now on.
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(homes)
