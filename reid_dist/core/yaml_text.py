"""YAML without numbers to base 60: ``1:10`` is a range and ``10:00:00`` a time; YAML 1.1 would have 70 and 36,000.

A key that occurs twice is an error, as in YAML itself: most readers take the last one without a message.  A document
knows the line of each of its values, for errors on what they mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import yaml

from reid_dist.core.regular_files import read_named
from reid_dist.errors import InputError, refuse

# Characters of a file, and of a document with every alias (*name) and merge (<<) written out.
_MOST_CHARACTERS: Final = 1_000_000
_DEEPEST: Final = 64

# Characters that escapes can write, and that neither paths nor documents can hold.
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """YAML of few levels whose numbers are decimal alone: in YAML 1.1 they may also be to base 60."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # Nodes that enclose the one that is being composed.
        self.depth = 0
        # Faults that leave the rest readable.
        self.faults: list[str] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # The scanner takes time in proportion to the square of the levels that are open.
        self.depth += 1
        if self.depth > _DEEPEST:
            raise RecursionError
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where values are made: by then merges (<<) may have brought in keys that are overridden.
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    twice = f"the key {key.value!r} occurs twice, in lines {lines[key.value]} and {line}"
                    self.faults.append(f"{twice}; keep one")
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


Path = tuple[int | str, ...]
"""Keys and positions that lead to a value."""


@dataclass(frozen=True)
class Document:
    """The content of a YAML document, and where its values are; some may be `replaced` by those of a command."""

    content: Any
    root: yaml.Node | None = None
    replaced: tuple[Path, ...] = ()

    def line(self, path: Path) -> int | None:
        """Line, from 1, of the value that keys and positions lead to, or of the nearest one around it that is there."""
        return self._find(path)[1]

    def place(self, path: Path) -> str:
        """The same place in words: ``line 4, metrics``."""
        if any(path[: len(each)] == each for each in self.replaced):
            return f"--set {_dotted(path)}"
        keys, line = self._find(path)
        return (_dotted(keys) or "the file") if line is None else f"line {line}, {_dotted(keys)}"

    def _find(self, path: Path) -> tuple[Path, int | None]:
        """Keys and positions of a path that are there, and a last key that is missing, and the line."""
        keys, line, node = list[int | str](), None, self.root
        for place, part in enumerate(path, start=1):
            found = next(_children(node, part), None)
            if found is not None:
                line, node = found[0].line + 1, found[1]
            # Models of several forms put the name of a form into the path.
            elif place < len(path) or isinstance(node, yaml.ScalarNode | yaml.SequenceNode):
                continue
            keys.append(part)
        return tuple(keys), line


def _dotted(path: Path) -> str:
    return ".".join(part if (part := str(key)).isprintable() else repr(part) for key in path)


def _children(node: yaml.Node | None, part: int | str) -> Iterator[tuple[yaml.Mark, yaml.Node]]:
    """Yield the entry of a node at a key or position, with where it starts; nothing if there is none."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        yield node.value[part].start_mark, node.value[part]
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == part:
                yield key.start_mark, value
                return


def read_yaml_file(path: str | os.PathLike[str], kind: str) -> Document:
    """Read the one document of a YAML file in UTF-8; `kind` is its name in messages, such as ``"suite file"``."""
    where = os.fspath(path)
    unfit = f"{where} is no {kind}"
    try:
        # At most four bytes a character.
        text = read_named(path, kind, 4 * _MOST_CHARACTERS).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not YAML: it is not UTF-8 text (byte {error.start}: {error.reason}); save it as UTF-8"
        ) from None
    # As a text file: any end of a line is a line feed.
    return parse_yaml(text.replace("\r\n", "\n").replace("\r", "\n"), where, unfit)


def parse_yaml(text: str, where: str, unfit: str | None = None) -> Document:
    """Read one document of plain values; messages call it `where`, or `unfit` if it is too deep or too large."""
    loader = None
    try:
        _refuse_size(len(text), unfit or where)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(None)
        refuse(loader.faults, where)
        _extent(node, {}, unfit or where)
        # It replaces merges (<<) by what they bring in.
        return Document(loader.construct_document(node), node)
    except RecursionError:
        raise InputError(f"{unfit or where}: it is nested too deeply") from None
    except InputError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise InputError(f"{where} is not YAML{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:  # Such as a date that does not exist.
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Extent(NamedTuple):
    """Characters and levels of a node with all aliases written out."""

    size: int
    depth: int


def _extent(node: yaml.Node, known: dict[int, _Extent | None], unfit: str, key: str = "") -> _Extent:
    """Return the extent of a node; each node is visited once, so that aliases of aliases cost nothing.

    `known` maps ids of nodes to their extents, None for nodes that enclose this one; `key` is what the node is of.
    """
    if isinstance(node, yaml.ScalarNode):
        if _UNUSABLE.search(node.value):
            place = f"line {node.start_mark.line + 1}{key and f', under {key!r},'}"
            raise InputError(f"{unfit}: the text in {place} holds a zero byte, or half of a surrogate pair")
        return _Extent(len(node.value) + 1, 1)
    found = known.get(id(node))
    if found is not None:
        return found
    if id(node) in known:
        raise InputError(f"{unfit}: the value in line {node.start_mark.line + 1} contains an alias of itself")
    known[id(node)] = None
    pairs = [each if isinstance(each, tuple) else (each,) for each in node.value]
    extents = [_extent(child, known, unfit, _key_of(pair) or key) for pair in pairs for child in pair]
    found = _Extent(1 + sum(each.size for each in extents), 1 + max((each.depth for each in extents), default=0))
    _refuse_size(found.size, unfit)
    if found.depth > _DEEPEST:
        raise InputError(f"{unfit}: it is nested too deeply")
    known[id(node)] = found
    return found


def _key_of(pair: tuple[yaml.Node, ...]) -> str:
    """The key of an entry of a mapping, where it is text; empty for an entry of a list."""
    return str(pair[0].value) if len(pair) > 1 and isinstance(pair[0], yaml.ScalarNode) else ""


def _refuse_size(size: int, unfit: str) -> None:
    if size > _MOST_CHARACTERS:
        raise InputError(
            f"{unfit}: with its aliases written out it has more than {_MOST_CHARACTERS:,} characters; split it up, or "
            "use fewer aliases (*name) and merges (<<)"
        )
