"""Partial results as named arrays, with their structure as JSON beside them: reading them runs no code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError

_STRUCTURE = "structure"


def encode(value: Any) -> dict[str, NDArray[Any]]:
    """Turn mappings, lists, tuples, dataclasses, arrays and plain values into arrays; TypeError for anything else."""
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_as_json(value, arrays), separators=(",", ":"))
    return {_STRUCTURE: np.frombuffer(text.encode(), np.uint8), **arrays}


def _as_json(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, np.ndarray | np.generic):
        name = f"array{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _as_json(getattr(value, each.name), arrays) for each in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": parts}
    if isinstance(value, Mapping):
        return {"mapping": [[_as_json(key, arrays), _as_json(each, arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_as_json(each, arrays) for each in value]}
    raise TypeError(f"a {type(value).__name__} cannot be kept in a workspace")


def decode(arrays: Mapping[str, NDArray[Any]], classes: Iterable[type]) -> Any:
    """Return the value that `encode` turned into arrays; `classes` are the dataclasses that may be in it."""
    known = {each.__name__: each for each in classes}
    try:
        return _from_json(json.loads(bytes(arrays[_STRUCTURE])), arrays, known)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedStoreError(
            f"a partial result in the workspace cannot be read ({error!r}); delete the stage and run again"
        ) from None


def _from_json(part: Any, arrays: Mapping[str, NDArray[Any]], known: Mapping[str, type]) -> Any:
    if "value" in part:
        return part["value"]
    if "array" in part:
        array = arrays[part["array"]]
        return array if array.ndim else array[()]
    if "class" in part:
        return known[part["class"]](**{name: _from_json(each, arrays, known) for name, each in part["fields"].items()})
    if "mapping" in part:
        return {_from_json(key, arrays, known): _from_json(each, arrays, known) for key, each in part["mapping"]}
    if "list" in part:
        return [_from_json(each, arrays, known) for each in part["list"]]
    return tuple(_from_json(each, arrays, known) for each in part["tuple"])
