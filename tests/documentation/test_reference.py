"""The reference: every public name has its entry, and no reference, link or picture leads nowhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pdoc import doc

import reid_dist
from tests.documentation import reference
from tests.documentation.pages import GUIDES
from tests.support.browser import (
    DARK,
    LIGHT,
    assert_follows_scheme,
    assert_no_page_overflows,
    browse,
    needs_browser,
    screenshot,
)


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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    reference.build(folder)
    return folder


@pytest.mark.slow
def test_pages_have_every_public_name_and_their_links_lead_somewhere(site: Path) -> None:
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html")}
    assert {*reid_dist.__all__} <= pages[site / "reid_dist.html"].places
    # From the first page to all guides and to the reference.
    linked = {(site / link).resolve() for link in pages[site / "index.html"].links if "://" not in link}
    assert {site / f"{name}.html" for name in (*GUIDES, "conventions", "reid_dist")} <= linked
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
def test_what_most_need_comes_first_and_hooks_of_files_are_private(site: Path) -> None:
    text = (site / "reid_dist.html").read_text()
    order = re.findall(r'<section id="(\w+)">', text)
    assert order[:3] == ["evaluate", "FeatureSet", "Report"]
    of_report = set(re.findall(r'id="Report\.(\w+)"', text))
    assert {"metrics", "save", "load", "to_pandas"} <= of_report
    assert of_report.isdisjoint({"beside", "caution", "remedy", "restored", "what", "writers", "entries"})
    # Types of NumPy's private modules say nothing to a reader.
    assert "_SupportsArray" not in text


@pytest.mark.slow
@needs_browser
def test_no_page_is_wider_than_its_window(site: Path, tmp_path: Path) -> None:
    assert_no_page_overflows([path.read_text() for path in sorted(site.rglob("*.html"))], (420, 1300), tmp_path)


@pytest.mark.slow
@needs_browser
def test_pages_follow_the_colour_scheme_and_search_from_disk(site: Path, tmp_path: Path) -> None:
    address = (site / "thresholds.html").as_uri()
    for scheme, dark in ((LIGHT, False), (DARK, True)):
        assert_follows_scheme(screenshot(address, tmp_path, scheme, 1300, 900), dark, 0.005)
    found = browse(f"{address}?search=ReIDMetric", tmp_path / "profile", "--virtual-time-budget=20000", "--dump-dom")
    assert re.search(r"\d+ search results? for 'ReIDMetric'", found)
    assert "training.html" in found.partition("search result")[2]


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
