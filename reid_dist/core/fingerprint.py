"""One helper that turns a definition into its identity: all of its fields, by name, none listed by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: dataclasses with their class and every field; TypeError for the rest."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, np.generic):
        return plain(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": type(value).__qualname__, **fields}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        if all(type(entry) is int for entry in value):  # There may be millions.
            return list(value)
        return [plain(entry) for entry in value]
    if isinstance(value, type):
        return {"type": f"{value.__module__}.{value.__qualname__}"}
    raise TypeError(f"a {type(value).__name__} has no fingerprint")


def fingerprint(*values: Any) -> str:
    """Identify values by SHA-256 over all their fields; equal values have equal fingerprints in every process."""
    text = json.dumps(plain(list(values)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
