"""The environment of the templates of all pages, and pages of tables alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jinja2
from markupsafe import Markup

from reid_dist.core import formatting
from reid_dist.reports.plots.embedded import add_charts
from reid_dist.reports.tabular.markup import breakable, html_notes
from reid_dist.reports.tabular.markup import html as tabled
from reid_dist.reports.tabular.table import Table


def render_tables(tables: Sequence[Table]) -> str:
    """Return a page of tables, whose title is that of the first one."""
    page = page_environment().get_template("tables.html.j2")
    return page.render(title=tables[0].title, tables=tables, has_images=False)


@functools.cache
def page_environment(package: str = "reid_dist.reports") -> jinja2.Environment:
    """Return the environment of templates of a package and of the reports; missing names are errors."""
    packages = dict.fromkeys([package, "reid_dist.reports"])
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["integer"] = formatting.integer
    environment.globals["section_head"] = _section_head
    environment.filters["breakable"] = breakable
    environment.filters["tabled"] = tabled
    environment.filters["paragraphs"] = html_notes
    add_charts(environment)
    return environment


@jinja2.pass_context
def _section_head(context: jinja2.runtime.Context, name: str, title: str) -> Markup:
    """Return the heading of a section, which is listed in the contents of the page."""
    context["contents"].append((name, title))
    return Markup('<h2 id="{}">{}</h2>').format(name, title)
