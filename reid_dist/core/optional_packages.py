"""Packages that extras of this package install."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

from reid_dist.core.address_space import require_address_space
from reid_dist.errors import InputError

# Addresses for the libraries of an extra: pyarrow takes 190 MB, and ends the process where it finds less.
_ROOM: Final = 2**28


def import_extra(module: str, extra: str, purpose: str, *, advice: str = "") -> ModuleType:
    """Import a module of an extra.

    Raises `InputError` with its purpose and the command to install it, and `ShortageError` where the limit of the
    address space leaves it no room.
    """
    if module not in sys.modules:
        require_address_space(_ROOM, module.partition(".")[0])
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing_extra(module, extra, purpose, advice) from None


def missing_extra(module: str, extra: str, purpose: str, advice: str = "") -> InputError:
    """Return the error for a module that is not installed."""
    package = module.partition(".")[0]
    return InputError(f"{purpose} needs {package}, which is not installed: pip install 'reid-dist[{extra}]'{advice}")
