"""HTML page of a night: verdicts, possible causes, and the trend of every job.

One file without scripts.  ``document`` collects the content, ``headline`` the first sentences, ``causes`` differences
between two nights, ``charts`` draws; ``templates/nights.html.j2`` is the layout.
"""

from reid_dist.nightly.page.document import render_nights

__all__ = ["render_nights"]
