"""Sizes of the pages of a parquet file, which are decoded whole: from their headers, which the library does not show.

A header is a Thrift structure in the compact protocol; its fields 2 and 3 are the bytes of the page decoded and in the
file (apache/parquet-format, parquet.thrift).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final

_DECODED, _STORED = 2, 3
_HEADER_BYTES = 1 << 16
_DEEPEST = 8

# Types of fields of the compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_WHOLE: Final = (4, 5, 6)


class _Header:
    """Reads one structure from bytes; IndexError or ValueError for bytes that are none."""

    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _skip(self, kind: int, depth: int) -> int:
        """Pass over a value; return it if it is a whole number."""
        if kind in _WHOLE:
            number = self._varint()
            return (number >> 1) ^ -(number & 1)
        if kind in (_TRUE, _FALSE):
            return 0
        if kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._skip(head & 0xF, depth + 1)
        elif kind == _STRUCT and depth < _DEEPEST:
            self.fields(depth + 1)
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            n_bytes = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint()
            self.place += n_bytes
        else:
            raise ValueError(f"a field is of type {kind}")
        return 0

    def fields(self, depth: int = 0) -> dict[int, int]:
        """Read the whole numbers of a structure by the number of their field."""
        found: dict[int, int] = {}
        number = 0
        while (head := self._byte()) != _STOP:
            step = head >> 4
            number = number + step if step else self._skip(_WHOLE[0], depth)
            found[number] = self._skip(head & 0xF, depth)
        return found


def largest_page(file: IO[bytes], column: Any) -> int:
    """Bytes of the largest page of a column of a row group, decoded; 0 where headers cannot be read here."""
    starts = [column.data_page_offset, column.dictionary_page_offset if column.has_dictionary_page else None]
    start = min(each for each in starts if each)
    try:
        return max(_pages(file, start, start + column.total_compressed_size), default=0)
    except (IndexError, ValueError, KeyError):  # The library says what is wrong with them.
        return 0


def _pages(file: IO[bytes], place: int, stop: int) -> Iterator[int]:
    while place < stop:
        file.seek(place)
        header = _Header(file.read(min(_HEADER_BYTES, stop - place)))
        fields = header.fields()
        if min(fields[_DECODED], fields[_STORED]) < 0:
            raise ValueError("a page has a negative size")
        yield fields[_DECODED]
        place += header.place + fields[_STORED]
