"""Lists in XML, as VeRi-776 and the vehicle track of AI City have them: one ``Item`` with attributes per image.

A document type is refused, so that there are no entities, neither of this file, which could grow without bounds, nor of
other files and hosts.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from pathlib import Path
from xml.parsers import expat

from reid_dist.core.regular_files import read_regular
from reid_dist.errors import InputError
from reid_dist.stores.importers.name_layouts.definition import Records
from reid_dist.stores.importers.name_layouts.records import columns_of, joined, source_of_columns

_DECLARATION = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["'][^>]*\?>""")
_ENCODINGS = ("utf-8", "gb18030", "gbk", "gb2312", "ascii", "iso8859-1", "utf-16")
_ITEM = "Item"
# The customary names of what the attributes are.
_COLUMNS = {"imageName": "path", "vehicleID": "pid", "cameraID": "camid",
            "colorID": "columns/color", "typeID": "columns/type"}  # fmt: skip
_NEEDED = ("imageName", "vehicleID", "cameraID")
_CAMERA = re.compile(r"c?([0-9]+)")
_BLOCK_CHARACTERS = 1 << 20


def read_xml_lists(paths: Sequence[Path]) -> Records:
    """Read the items of XML files: names, identities, cameras, colours and types."""
    return joined(paths, [_read(path) for path in paths])


def _read(path: Path) -> Records:
    text = _text_of(path)
    items: list[dict[str, str]] = []

    def refuse_document_type(*_: object) -> None:
        raise InputError(
            f"{path} declares a document type, whose entities are never read; remove the <!DOCTYPE …> from the file"
        )

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == _ITEM:
            items.append(attributes)

    # The text is given in UTF-8, whatever encoding it declares.
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = refuse_document_type
    parser.StartElementHandler = start
    try:
        for first in range(0, len(text), _BLOCK_CHARACTERS):
            parser.Parse(text[first : first + _BLOCK_CHARACTERS].encode(), False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise InputError(f"{path} is not XML: {error}") from None
    return _columns(path, items)


def _text_of(path: Path) -> str:
    """Decode a document by its byte order mark or its declaration."""
    data = read_regular(path)
    declared = _DECLARATION.match(data)
    name = "utf-8" if declared is None else declared[1].decode("ascii")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    try:
        encoding = codecs.lookup(name).name
        if encoding not in _ENCODINGS:
            raise LookupError
        # All of GB 2312 is GB 18030, and files declare the former for the latter.
        return data.decode("gb18030" if encoding in ("gb2312", "gbk") else encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"{path} is in the encoding {name}, which is not read; save it as UTF-8") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no text in {name}: byte {error.start} has no meaning there; save it as UTF-8"
        ) from None


def _columns(path: Path, items: list[dict[str, str]]) -> Records:
    for place, item in enumerate(items):
        missing = [name for name in _NEEDED if name not in item]
        if missing:
            raise InputError(f"{path}: item {place} has no {' and no '.join(missing)}; every <Item> needs one")
    if not items:
        raise InputError(f"{path} holds no <Item imageName=… vehicleID=… cameraID=…>")
    held = {name: what for name, what in _COLUMNS.items() if all(name in item for item in items)}
    columns = {what: [item[name] for item in items] for name, what in held.items()}
    columns["camid"] = [_camera(path, place, text) for place, text in enumerate(columns["camid"])]
    return columns_of(source_of_columns(path, columns), path)


def _camera(path: Path, place: int, text: str) -> str:
    found = _CAMERA.fullmatch(text)
    if found is None:
        raise InputError(f"{path}: item {place} has the cameraID {text!r}, and cameras are c001, c002, …")
    return found[1]
