"""One folder of README, guides and reference, which opens from disk: `index.html` is the README.

The reference has every public name, and the modules that their documentation names.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import inspect
import posixpath
import re
import shutil
import types
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path

from numpy.typing import ArrayLike
from pdoc import doc, render
from pygments.formatters import HtmlFormatter

import reid_dist
from reid_dist import errors
from tests.documentation.pages import GUIDES, ROOT, read

DOCUMENTS = {
    "README.md": "index",
    "pipelines/README.md": "guides",
    **{f"pipelines/{name}.md": name for name in (*GUIDES, "conventions")},
    "cluster_configs/README.md": "cluster_configs",
    "tests/benchmarks/README.md": "benchmarks",
    "reid_dist/README.md": "architecture",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
}
"""Pages of the documents, by file."""

FIRST = ("evaluate", "FeatureSet", "Report", "compare", "compare_runs", "ingest", "nearest", "conventions")
"""Public names in the order of the reference; all others follow in theirs."""

_TEMPLATES = Path(__file__).parent / "templates"
_DARK_CODE = "github-dark"
_PACKAGE = "reid_dist"
_MODULE = re.compile(rf"\b{_PACKAGE}(?:\.[a-z_]\w*)+")
# A name, or names with dots between them, as numpydoc marks what can be looked up.
_REFERENCE = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`(?!`)")
_LINK = re.compile(r"(\[[^\]]*\]|!\[[^\]]*\])\(([^)\s]+)\)")


@contextlib.contextmanager
def _warnings_as_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Annotations whose types are imported for type checkers alone are shown as they are written.
        warnings.filterwarnings("ignore", "Error parsing type annotation")
        yield


def build(folder: Path) -> list[Path]:
    """Write all pages to a folder; a reference or link that leads nowhere, and any warning, is an error."""
    with _warnings_as_errors():
        reference = modules()
        pages = {**documents(), **reference}
        render.configure(docformat="numpy", show_source=False, search=True, template_directory=_TEMPLATES)
        render.env.globals |= {
            "titles": {name: _title(path) for path, name in DOCUMENTS.items()},
            "site": _site([*reference]),
            "dark_code": HtmlFormatter(style=_DARK_CODE).get_style_defs(".pdoc-code"),
        }
        written = []
        for name, module in pages.items():
            page = folder / f"{name.replace('.', '/')}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(render.html_module(module, pages), encoding="utf-8")
            written.append(page)
        (folder / "search.js").write_text(render.search_index(pages), encoding="utf-8")
    for picture in _pictures():
        target = folder / picture
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / picture, target)
    return written


def _title(path: str) -> str:
    """The first heading of a document."""
    return read(path).partition("\n")[0].removeprefix("# ")


def _site(reference: list[str]) -> dict[str, list[str]]:
    """Names of all pages, by heading of the navigation."""
    guides = ["guides", *GUIDES, "conventions", "cluster_configs"]
    listed = {"index", *guides}
    return {
        "Start": ["index"],
        "Guides": guides,
        "Reference": reference,
        "Project": [name for name in DOCUMENTS.values() if name not in listed],
    }


def modules() -> dict[str, doc.Module]:
    """The package, modules of what its functions return, and all that their documentation names in full."""
    found: dict[str, doc.Module] = {}
    names = [_PACKAGE, errors.__name__]
    with _warnings_as_errors():
        while names:
            name = names.pop()
            if name not in found:
                found[name] = _module(name)
                texts = [each.docstring for each in documented(found[name])]
                texts += returned(found[name]) if name == _PACKAGE else []
                names += [named for text in texts for named in _named_modules(text)]
        missing = [problem for module in found.values() for problem in unresolved(module)]
    if missing:
        raise ValueError("references that lead nowhere: " + "; ".join(missing))
    return dict(sorted(found.items()))


def returned(module: doc.Module) -> list[str]:
    """Types, in full, that the functions of a module return."""
    functions = [each for each in module.members.values() if isinstance(each, doc.Function)]
    return [inspect.formatannotation(each.signature.return_annotation) for each in functions]


def _module(name: str) -> doc.Module:
    """A module whose classes show the members that they have from classes of this package."""
    documented_module = importlib.import_module(name)
    for public in getattr(documented_module, "__all__", ()):
        # Names are imported when they are used; pdoc reads what is there.
        getattr(documented_module, public)
    module = doc.Module(documented_module)
    first = [each for each in FIRST if each in module.members] if name == _PACKAGE else []
    module.members = {each: module.members[each] for each in (*first, *module.members)}
    for each in module.members.values():
        if isinstance(each, doc.Class):
            for member in each.members.values():
                if member.taken_from[0].startswith(_PACKAGE):
                    member.taken_from = (each.modulename, member.qualname)
    for each in [*module.members.values(), *(each for found in module.classes for each in found.members.values())]:
        if isinstance(each, doc.Function):
            each.signature = _as_written(each.signature)
    return module


class _Written:
    """An annotation that is shown as a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _as_written(signature: inspect.Signature) -> inspect.Signature:
    """A signature without quotes, in which `ArrayLike` is a name, and not the types of NumPy that it stands for."""
    return signature.replace(
        parameters=[each.replace(annotation=_by_name(each.annotation)) for each in signature.parameters.values()],
        return_annotation=_by_name(signature.return_annotation),
    )


def _by_name(annotation: object) -> object:
    """An annotation that is shown as it is written: names of arrays, and no quotes."""
    if isinstance(annotation, str):
        return _Written(annotation)
    arrays, parts = typing.get_args(ArrayLike), typing.get_args(annotation)
    if all(each in parts for each in arrays):
        others = [inspect.formatannotation(part) for part in parts if part not in arrays]
        return _Written(" | ".join(["ArrayLike", *others]).replace("NoneType", "None"))
    text = inspect.formatannotation(annotation)
    short = text.replace(repr(ArrayLike), "ArrayLike")
    return annotation if short == text else _Written(short)


def documented(namespace: doc.Namespace[types.ModuleType] | doc.Class | doc.Module) -> Iterator[doc.Doc[object]]:
    """A module and everything public in it, classes with their members."""
    yield namespace
    for member in namespace.members.values():
        if member.name.startswith("_") or not member.docstring:
            continue
        if isinstance(member, doc.Class):
            yield from documented(member)
        else:
            yield member


def _named_modules(text: str) -> Iterator[str]:
    """Modules that a text names in full, or whose members it names."""
    for name in _MODULE.findall(text):
        while name != _PACKAGE:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                name = name.rpartition(".")[0]
            else:
                yield name
                break


def unresolved(module: doc.Module) -> Iterator[str]:
    """References of a module's documentation that denote no parameter, member or public name."""
    for each in documented(module):
        for name in _REFERENCE.findall(_prose(each.docstring)):
            if not _resolves(name, each, module):
                yield f"`{name}` in {each.fullname}"


def _prose(text: str) -> str:
    """A text without its code."""
    return re.sub(r"``.*?``", "", text, flags=re.DOTALL)


def _resolves(name: str, where: doc.Doc[object], module: doc.Module) -> bool:
    first = name.partition(".")[0]
    return (
        first in _own_names(where)
        or first in _own_names(module.get(where.qualname.rpartition(".")[0]))
        or _has(reid_dist, name)
        or _has(errors, name)
        or _has(inspect.getmodule(where.obj) or module.obj, name)
        or _has(builtins, name)
        or ("." in name and _imports(name))
    )


def _own_names(where: doc.Doc[object] | None) -> set[str]:
    """Parameters of a function, and members of a class with those of its constructor."""
    found: set[str] = set()
    if isinstance(where, doc.Class):
        found |= {*where.members}
        where = where.get("__init__") or where
    if isinstance(where, doc.Function):
        found |= {*where.signature.parameters}
    return found


def _has(holder: object, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(holder, part):
            return False
        holder = getattr(holder, part)
    return True


def _imports(name: str) -> bool:
    """Whether a full name leads to something, such as `numpy.ndarray`."""
    head, _, rest = name.partition(".")
    while True:
        try:
            holder = importlib.import_module(head)
        except ModuleNotFoundError:
            return False
        if not rest or _has(holder, rest):
            return True
        step, _, rest = rest.partition(".")
        head = f"{head}.{step}"


def documents() -> dict[str, doc.Module]:
    found = {}
    for path, name in DOCUMENTS.items():
        module = types.ModuleType(name)
        module.__doc__ = _LINK.sub(lambda link, path=path: _on_page(link, path), (ROOT / path).read_text())
        found[name] = doc.Module(module)
    return found


def _on_page(link: re.Match[str], path: str) -> str:
    """A link of a document, led to the page of the other document or to the picture."""
    text, target = link.groups()
    if "://" in target or target.startswith("#"):
        return link[0]
    place, _, part = target.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), place))
    if not (ROOT / place).exists():
        raise ValueError(f"{path} links to {target}, which is not there")
    if place in DOCUMENTS:
        return f"{text}({DOCUMENTS[place]}.html{'#' + part if part else ''})"
    return f"{text}({place})" if text.startswith("!") else text.strip("[]")


def _pictures() -> set[str]:
    """Pictures that documents show, by path from the root."""
    found = set()
    for path in DOCUMENTS:
        for text, target in _LINK.findall((ROOT / path).read_text()):
            if text.startswith("!") and "://" not in target:
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
    return found
