"""The page of a history: today's verdicts, their causes, and the trend of every job.

One file that is read offline and runs no script.  ``document`` says what stands on it, ``headline`` what is said
first, ``causes`` what changed between two nights, ``charts`` draws; ``templates/nights.html.j2`` says where
everything goes.
"""

from reid_dist.nightly.page.document import render_nights

__all__ = ["render_nights"]
