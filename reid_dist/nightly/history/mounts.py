"""On which kind of file system a file lies, and whether that is one that several hosts see.

SQLite is safe where the locks of a file system hold, which over a network they may not; and its write-ahead log needs
memory that all who have the file open share, which two hosts do not have.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PurePosixPath
from typing import Final

__all__ = ["is_over_network", "mounted_kind", "network_file_system"]

MOUNTS: Final = Path("/proc/self/mountinfo")

# As the kernel calls them.
_KINDS: Final = frozenset(
    {
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "cvfs", "dvs", "fhgfs", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "mmfs", "ncp", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2"),
        *("smb3", "smbfs", "wekafs"),
    }
)
# What follows ``fuse.``; most that come through FUSE are local, such as overlays and encrypted directories.
_THROUGH_FUSE: Final = frozenset(
    {
        *("alluxio", "alluxio-fuse", "beegfs", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "cephfs", "cifs"),
        *("curlftpfs", "cvmfs2", "davfs", "davfs2", "dfuse", "gcsfuse", "geesefs", "glusterfs", "goofys", "gpfs"),
        *("grpcfuse", "gvfsd-fuse", "hdfs", "juicefs", "lizardfs", "lustre", "mfs", "moosefs", "mount-s3"),
        *("mountpoint-s3", "nfs", "objectivefs", "osxfs", "quobyte", "rclone", "s3backer", "s3fs", "s3ql", "seaweedfs"),
        *("smbnetfs", "sshfs", "weed"),
    }
)
_FUSE: Final = "fuse."

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
# Of a line of mountinfo, see proc(5): ``36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw``.
_POINT: Final = 4
_BEFORE_KIND: Final = " - "


def network_file_system(path: Path) -> str:
    """Return the kind of file system that a file lies on, such as ``nfs4``, if hosts reach it over a network.

    Empty for a local one, and where the system does not tell.
    """
    try:
        # As bytes: a mount point may hold whatever a reader of text takes for the end of a line.
        mounts = MOUNTS.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    # The directory, for the file may not be there yet, or be a link to another place.
    kind = mounted_kind(path.resolve().parent, mounts)
    return kind if is_over_network(kind) else ""


def mounted_kind(directory: PurePath, mounts: str) -> str:
    """Return the kind of file system of a directory; empty where nothing is mounted above it.

    Parameters
    ----------
    directory
        An absolute path without links.
    mounts
        The text of ``/proc/self/mountinfo``.
    """
    longest, kind = 0, ""
    for line in mounts.split("\n"):
        before, _, after = line.partition(_BEFORE_KIND)
        fields = before.split(" ")
        if not after or len(fields) <= _POINT:
            continue
        point = PurePosixPath(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[_POINT]))
        # The same length again: what was mounted later hides what was mounted there before.
        if len(point.parts) >= longest and directory.is_relative_to(point):
            longest, kind = len(point.parts), after.split(" ")[0]
    return kind


def is_over_network(kind: str) -> bool:
    """Whether a kind of file system is one that hosts reach over a network."""
    if kind.startswith(_FUSE):
        return kind.removeprefix(_FUSE) in _THROUGH_FUSE
    return kind in _KINDS
