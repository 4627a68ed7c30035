"""YAML as people write it: ``1:10`` is a range and ``10:00:00`` a time, where YAML 1.1 would have 70 and 36,000."""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["read_yaml"]


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are decimal alone: in YAML 1.1 they may also be to base 60."""


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf)$|\.nan$"),
    list("-+0123456789."),
)


def read_yaml(text: str) -> Any:
    """Read one document of plain values.

    Raises
    ------
    yaml.YAMLError, ValueError
        If it is not YAML.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
