"""YAML as people write it: ``1:10`` is a range and ``10:00:00`` a time, where YAML 1.1 would have 70 and 36,000.

A key that stands twice is an error, as YAML has it: most readers take the last one and say nothing.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["read_yaml"]


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are decimal alone: in YAML 1.1 they may also be to base 60."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where values are made: by then merges (<<) may have brought in keys that are overridden.
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise ValueError(f"the key {key.value!r} stands twice, in lines {lines[key.value]} and {line}")
                lines[key.value] = line
        return node


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
        If it is not YAML, or a key stands twice in one mapping.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
