"""HTML page of a night: one line a job, and behind it reasons, possible causes and trends.

One file without scripts.  ``document`` collects the content, ``charts`` draws; ``templates/nights.html.j2`` is the
layout.
"""

from reid_dist.nightly.page.document import render_nights

__all__ = ["render_nights"]
