"""The reference: every public name has its entry, and no reference, link or picture leads nowhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pdoc import doc

import reid_dist
from tests.documentation import reference


@pytest.fixture(scope="module")
def modules() -> dict[str, doc.Module]:
    return reference.modules()


@pytest.mark.slow
def test_references_and_links_lead_somewhere(modules: dict[str, doc.Module]) -> None:
    assert {"reid_dist", "reid_dist.errors", "reid_dist.relevance.protocols"} <= set(modules)
    assert {*reference.DOCUMENTS.values()} == set(reference.documents())


@pytest.mark.slow
def test_a_reference_that_leads_nowhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "\n\n    `reid_dist.nothing`, `nobody`, `query`, `FeatureSet.save`, `reid_dist.errors.InputError`, ``none``\n"
    )
    monkeypatch.setattr(reid_dist.fuse, "__doc__", str(reid_dist.fuse.__doc__) + words.replace("query", "others"))
    with pytest.raises(ValueError, match="lead nowhere") as found:
        reference.modules()
    assert re.findall(r"`([\w.]+)`", str(found.value)) == ["reid_dist.nothing", "nobody"]


class _Page(HTMLParser):
    """Links and places of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.links += [str(found[name]) for name in ("href", "src") if found.get(name)]
        self.places |= {str(found["id"])} if found.get("id") else set()


@pytest.mark.slow
def test_pages_have_every_public_name_and_their_links_lead_somewhere(tmp_path: Path) -> None:
    reference.build(tmp_path)
    pages = {path: _Page(path.read_text()) for path in tmp_path.rglob("*.html")}
    assert {*reid_dist.__all__} <= pages[tmp_path / "reid_dist.html"].places
    for path, page in pages.items():
        for link in page.links:
            target, _, place = link.partition("#")
            if "://" in link or link.startswith("data:"):
                continue
            other = path if not target else (path.parent / target).resolve()
            assert other.is_file(), f"{path.name} links to {link}"
            if place and other in pages:
                assert place in pages[other].places, f"{path.name} links to {link}"


@pytest.mark.slow
def test_what_functions_return_is_under_a_type(modules: dict[str, doc.Module]) -> None:
    """As numpydoc has it: text in the place of the type would be in bold print, and its second line a type again."""
    for module in modules.values():
        for each in reference.documented(module):
            for section in re.findall(r"^Returns\n-+\n(.*?)(?:\n\n|\Z)", each.docstring, re.MULTILINE | re.DOTALL):
                first, *others = section.splitlines()
                assert not first.endswith((".", ",")), each.fullname
                assert others, each.fullname
                assert all(line.startswith("    ") for line in others), each.fullname
