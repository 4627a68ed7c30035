"""Packages that extras of this package install."""

from __future__ import annotations

import importlib
from types import ModuleType

from reid_dist.errors import InputError


def import_extra(module: str, extra: str, purpose: str, *, advice: str = "") -> ModuleType:
    """Import a module of an extra; raises `InputError` with its purpose and the command to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing_extra(module, extra, purpose, advice) from None


def missing_extra(module: str, extra: str, purpose: str, advice: str = "") -> InputError:
    """Return the error for a module that is not installed."""
    package = module.partition(".")[0]
    return InputError(f"{purpose} needs {package}, which is not installed: pip install 'reid-dist[{extra}]'{advice}")
