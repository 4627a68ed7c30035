"""JSON schemas of files that others define, as check-jsonschema ships them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any


def read_schema(name: str) -> dict[str, Any]:
    """Read a schema by its file name; the package itself, whose import takes half a second, is not imported."""
    found = importlib.util.find_spec("check_jsonschema")
    assert found is not None
    assert found.origin is not None
    schema: dict[str, Any] = json.loads((Path(found.origin).parent / "builtin_schemas" / "vendor" / name).read_text())
    return schema
