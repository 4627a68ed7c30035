"""Tables of libraries that are not known by name."""

from __future__ import annotations

import pyarrow as pa


class Stream:
    """What any library gives whose tables are Arrow streams, such as polars."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)
