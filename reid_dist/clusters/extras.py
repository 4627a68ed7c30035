"""Packages that one kind of cluster needs and the others do not."""

from __future__ import annotations

import importlib
from types import ModuleType

from reid_dist.errors import InputError


def import_extra(module: str, extra: str, kind: str) -> ModuleType:
    """Import a package of an extra.

    Raises
    ------
    InputError
        If it is not installed; the message gives the command to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(
            f"a cluster of kind {kind} needs the package {package}: pip install 'reid-dist[{extra}]'"
        ) from None
