"""What kind of file system a history lies on, and what becomes of it over a network."""

from __future__ import annotations

import sqlite3
from pathlib import Path, PurePosixPath

import pytest
from history_entries import NAME, entry_of, small_report

import reid_dist.nightly.history.mounts as mounts
from reid_dist.nightly.history import History
from reid_dist.nightly.history.mounts import is_over_network, mounted_kind, network_file_system

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
30 22 0:45 / /home rw,relatime shared:40 - autofs systemd-1 rw,fd=51
31 30 0:52 /export /home/ann rw,relatime shared:41 master:2 propagate_from:1 - nfs4 nas:/export/ann rw,vers=4.2
32 22 0:53 / /mnt/my\040disk rw - cifs //server/share rw,vers=3.0
33 22 0:54 / /mnt/back\134slash rw - fuse.sshfs ann@host: rw,user_id=1000
34 22 0:55 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw
35 34 8:2 /local /scratch/local rw - xfs /dev/sdb1 rw
36 22 0:56 / /data rw - nfs nas:/data rw
37 36 8:3 / /data rw - ext4 /dev/sdc1 rw
38 22 0:57 / /odd\011tab\012line rw - 9p C:\134 rw
39 22 0:58 / /no/optional/fields rw - tmpfs  rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/", "ext4"),
        ("/srv/nights", "ext4"),
        ("/home", "autofs"),
        ("/home/ann", "nfs4"),
        ("/home/ann/nights/deep", "nfs4"),
        ("/home/annabel", "autofs"),
        ("/mnt/my disk/nights", "cifs"),
        ("/mnt/my", "ext4"),
        (r"/mnt/back\slash", "fuse.sshfs"),
        ("/scratch/nights", "lustre"),
        ("/scratch/local/nights", "xfs"),
        ("/data/nights", "ext4"),
        ("/odd\ttab\nline/nights", "9p"),
        ("/no/optional/fields", "tmpfs"),
    ],
)
def test_the_longest_mount_point_above_a_directory_counts(directory: str, kind: str) -> None:
    assert mounted_kind(PurePosixPath(directory), MOUNTS) == kind


@pytest.mark.parametrize("text", ["", "\n", "22 1 8:1 / /", "22 1 - ext4", "what is this - a mount", "- - -"])
def test_a_text_that_says_nothing_says_nothing(text: str) -> None:
    assert mounted_kind(PurePosixPath("/srv"), text) == ""


def test_kinds_that_hosts_share() -> None:
    over = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs"]
    over += [f"fuse.{name}" for name in ("sshfs", "s3fs", "glusterfs", "ceph-fuse", "gcsfuse", "juicefs", "rclone")]
    local = ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse", "fuseblk", "nfsd", "sshfs", ""]
    local += [f"fuse.{name}" for name in ("gocryptfs", "mergerfs", "fuse-overlayfs", "ext4", "")]
    assert [kind for kind in over if not is_over_network(kind)] == []
    assert [kind for kind in local if is_over_network(kind)] == []


def mounted(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a directory look like one on a file system of that kind."""
    escaped = str(folder).replace("\\", r"\134").replace(" ", r"\040")
    table = folder.with_name(f"{folder.name}-mountinfo")
    table.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 0:52 / {escaped} rw - {kind} nas:/export rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shared disk"
    folder.mkdir()
    mounted(folder, "nfs4", monkeypatch)
    return folder


def journal_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    return str(mode)


def one_night(path: Path) -> str:
    """Append a night, and return the caution."""
    with History.open(path) as history:
        number = history.begin("market", "")
        report = small_report(number)
        with history.alive(number, every=0.002):
            history.add(number, entry_of(report), report)
            history.finish(number, 0)
        return history.caution


def test_links_lead_to_where_the_file_is(shared: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "link.db").symlink_to(shared / "nightly.db")
    (shared / "link.db").symlink_to(local / "nightly.db")
    (local / "folder").symlink_to(shared)
    found = [shared / "a.db", local / "link.db", local / "folder" / "deep" / "a.db", shared / "link.db", local / "a.db"]
    assert [network_file_system(path) for path in found] == ["nfs4", "nfs4", "nfs4", "", ""]


def test_a_system_that_tells_nothing_of_mounts_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "missing")
    assert network_file_system(tmp_path / "nightly.db") == ""


def test_a_history_on_a_network_works_without_a_shared_log_and_says_so(shared: Path) -> None:
    path = shared / "deep" / "nightly.db"
    for _ in range(2):
        caution = one_night(path)
        assert caution.startswith(f"history {path} is on a network file system (nfs4)")
        assert "one host at a time" in caution
        assert "local disk" in caution
        assert "\n" not in caution
    assert journal_of(path) == "delete"
    assert {each.name for each in path.parent.iterdir()} == {"nightly.db", "nightly.db.marker.json"}
    with History.open(path, create=False, read_only=True) as history:
        assert history.caution == "", "who only reads has nothing to look after"
        assert [history.report(number, NAME).counts["n_query"] for number in (1, 2)] == [40, 40]


def test_a_file_that_moves_takes_the_journal_of_its_place(shared: Path, path: Path) -> None:
    assert one_night(path) == ""
    assert journal_of(path) == "wal"
    moved = path.rename(shared / "nightly.db")
    assert one_night(moved)
    assert journal_of(moved) == "delete"
    moved.rename(path)
    assert one_night(path) == ""
    assert journal_of(path) == "wal"
    with History.open(path, create=False, read_only=True) as history:
        assert [run.exit_code for run in history.runs()] == [0, 0, 0]


def test_a_log_that_somebody_else_has_open_is_kept(shared: Path, path: Path) -> None:
    one_night(path)
    moved = path.rename(shared / "nightly.db")
    reader = sqlite3.connect(moved, isolation_level=None)
    assert reader.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    assert one_night(moved)
    assert journal_of(moved) == "wal"
    assert reader.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    reader.close()
    assert one_night(moved)
    assert journal_of(moved) == "delete"


def test_commands_that_write_warn_once(reid_dist, shared: Path) -> None:
    path = shared / "nightly.db"
    one_night(path)
    for words in (("accept", f"{path}#1", "--why", "so"), ("prune", path, "--keep", "1")):
        told = reid_dist("history", *words)
        assert told.code == 0
        (line,) = told.err.splitlines()
        assert line.startswith(f"Warning: history {path} is on a network file system (nfs4)")
    for words in (("show", path), ("export", path, "--format", "csv")):
        told = reid_dist("history", *words)
        assert (told.code, told.err) == (0, "")
