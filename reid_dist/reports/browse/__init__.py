"""An explorer of the ranked lists of a run: a page, a script and pages of data, for a server or a folder.

The script files of data call a function of the page.  A browser loads them from a server and from disk alike, where
other requests are blocked, so that both have the same files.
"""

from reid_dist.reports.browse.folder import write_folder
from reid_dist.reports.browse.server import ListServer
from reid_dist.reports.browse.site import Site
from reid_dist.reports.browse.subject import Against, Subject, open_subject

__all__ = ["Against", "ListServer", "Site", "Subject", "open_subject", "write_folder"]
