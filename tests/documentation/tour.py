"""The notebook `pipelines/tour.ipynb`: its cells run here, without a kernel, and their outputs are stored in it.

As in Jupyter, a cell shows what it prints, the figures that it leaves open, and the value of its last expression.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib

_EMBEDDED = re.compile(r"data:image/jpeg;base64,([A-Za-z0-9+/=]*)")

NOTEBOOK = Path(__file__).parents[2] / "pipelines" / "tour.ipynb"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a run of its cells, one after the other."""
    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        count += 1
        outputs = _outputs("".join(cell["source"]), names, count)
        cells.append({**cell, "execution_count": count, "outputs": outputs})
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    found += [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture, "text/plain": ["<Figure>"]}}
        for picture in _open_figures()
    ]
    if value is not None:
        shown = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            shown = {"text/html": _lines(value._repr_html_()), **shown}
        found.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": shown})
    return found


def _open_figures() -> list[str]:
    """Figures as PNG files in base64; they are closed."""
    from matplotlib import pyplot

    pictures = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=60, metadata={"Software": None})
        pictures.append(base64.b64encode(file.getvalue()).decode("ascii"))
        pyplot.close(number)
    return pictures


def images(notebook: dict[str, Any]) -> list[bytes]:
    """Files of all images in the outputs of a notebook: figures, and those within HTML."""
    found = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            found += [data["image/png"]] if "image/png" in data else []
            found += _EMBEDDED.findall("".join(data.get("text/html", ())))
    return [base64.b64decode(each) for each in found]


def without_images(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook without the contents of its images, which depend on versions of matplotlib, Pillow and fonts."""
    text = _EMBEDDED.sub("data:image", json.dumps(notebook))
    found: dict[str, Any] = json.loads(re.sub(r'("image/png": ")[^"]*', r"\1", text))
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def read() -> dict[str, Any]:
    """The notebook as it is stored."""
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found


def store() -> None:
    """Run the notebook, and store it with its outputs."""
    text = json.dumps(executed(read()), indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(f"{text}\n", encoding="utf-8")
