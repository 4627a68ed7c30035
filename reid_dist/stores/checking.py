"""Check a store: read every chunk of every array, and report all damage and all oddities.

Damage prevents an evaluation: bytes that differ from those that were written, or that were never committed.
Oddities are counted and listed for review: rows of zeros, exact duplicates, junk and distractors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.finding_words import item_name, keep_first
from reid_dist.core.formatting import counted
from reid_dist.errors import DamagedStoreError, IncompleteStoreError
from reid_dist.stores.digests import HASH, ContentHasher, row_hashes
from reid_dist.stores.folders import folder_at
from reid_dist.stores.kept_rows import FIRST_OFFENDERS, Offenders, RowFaults, find_faults
from reid_dist.stores.labels import COLUMN_PREFIX, Labels
from reid_dist.stores.layout import Manifest
from reid_dist.stores.locations import canonical_uri
from reid_dist.stores.repeated_items import NAMES, repeated_rows
from reid_dist.stores.stored import Damage, StoreReader


@dataclass(frozen=True)
class CheckReport:
    """Result of a check.

    `manifest` is None if there is no readable one.  `damage` is in the order of the store; `faults` are counted over
    the chunks that could be read.  `duplicates` are rows that are byte for byte an earlier row: `first_duplicates` are
    pairs of the row and the earlier one.  `labels` are lines on the labels, none if pids cannot be read.
    """

    uri: str
    manifest: Manifest | None = None
    damage: tuple[Damage, ...] = ()
    faults: RowFaults = field(default_factory=RowFaults)
    duplicates: Offenders = field(default_factory=Offenders)
    first_duplicates: tuple[tuple[int, int], ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def damaged(self) -> bool:
        """Whether the store must not be evaluated."""
        return bool(self.damage or self.faults.nan or self.faults.infinite)

    def lines(self) -> list[str]:
        """Return what to print: the verdict first, then damage, then oddities."""
        lines = [f"{self.uri}: {'damaged' if self.damaged else 'whole'}"]
        lines += [f"  damaged: {damage}" for damage in self.damage]
        found = self.manifest
        if found is None:
            return lines
        lines.append(
            f"  {found.n_rows} x {found.dim} {found.dtype} in {counted(found.n_chunks, 'chunk')}, content "
            f"{found.content_digest}"
        )
        for what, rows in (("NaN", self.faults.nan), ("infinity", self.faults.infinite)):
            if rows:
                lines.append(f"  {what}: {rows}")
        meant = ", meant" if found.allow_zero and self.faults.zero else ""
        lines.append(f"  zeros: {self.faults.zero}{meant}")
        pairs = ", ".join(f"{row} = {earlier}" for row, earlier in self.first_duplicates)
        lines.append(f"  duplicates of an earlier row: {self.duplicates.count}" + (f" ({pairs})" if pairs else ""))
        lines += [f"  {line}" for line in self.labels]
        if self.duplicates:
            lines.append(f"  note: {keep_first(self.uri, 'features')}, by features")
        return lines


def check_store(
    location: str | os.PathLike[str], progress: Callable[[int, int, str], None] | None = None
) -> CheckReport:
    """Read every chunk of a store and report all damage, not only the first.

    `progress` is called after every chunk with rows done, rows in all, and the store.  Memory is bounded by one chunk,
    the labels and 16 bytes per row.  StoreNotFoundError if nothing is there, StoreError if it is something else.
    """
    uri = canonical_uri(location)
    try:
        reader = StoreReader.open(uri)
    except IncompleteStoreError:
        present = sum(1 for _ in folder_at(uri).walk("features/c"))
        what = f"no commit marker: the ingest was stopped, or is still running; {present} files of features are there"
        return CheckReport(uri, damage=(Damage("manifest", what, "zarr.json"),))
    except DamagedStoreError as error:
        return CheckReport(uri, damage=(Damage("manifest", error.in_one_line, "zarr.json"),))
    return _check_rows(reader, progress)


def _check_rows(reader: StoreReader, progress: Callable[[int, int, str], None] | None) -> CheckReport:
    manifest = reader.manifest
    damage: list[Damage] = []
    faults, content = RowFaults(), ContentHasher()
    hashes = np.zeros(manifest.n_rows, HASH)
    readable = np.zeros(manifest.n_rows, dtype=np.bool_)
    for chunk, found in enumerate(reader.examine_chunks()):
        held = manifest.rows_of_chunk(chunk)
        if isinstance(found, Damage):
            damage.append(found)
        else:
            faults += find_faults(found, held.start)
            content.update(found)
            hashes[held.start : held.stop] = row_hashes(found)
            readable[held.start : held.stop] = True
        if progress is not None:
            progress(held.stop, manifest.n_rows, reader.uri)
    labels: Labels = {}
    for name in manifest.labels:
        values = reader.examine_label(name)
        if isinstance(values, Damage):
            damage.append(values)
        else:
            labels[name] = values
            if not name.endswith("_names") and len(values) != manifest.n_rows:
                what = f"{counted(len(values), 'entry')} for {counted(manifest.n_rows, 'row')}"
                damage.append(Damage(name, what, name))
    if not damage:
        digests = {name: entry.digest for name, entry in manifest.labels.items()}
        digest = content.finish(manifest.dim, manifest.numpy_dtype, digests)
        if digest != manifest.content_digest:
            damage.append(Damage("manifest", f"its content digest is not the rows' {digest}", "zarr.json"))
    duplicates, pairs = _find_duplicates(hashes, np.flatnonzero(readable))
    return CheckReport(
        uri=reader.uri,
        manifest=manifest,
        damage=tuple(damage),
        faults=faults,
        duplicates=duplicates,
        first_duplicates=pairs,
        labels=tuple(_label_lines(reader.uri, labels)),
    )


def _find_duplicates(hashes: NDArray[np.void], rows: NDArray[np.intp]) -> tuple[Offenders, tuple[tuple[int, int], ...]]:
    """Rows, of ascending ones, that have the hash of an earlier one, and the first of them with the earliest one."""
    _, first, of_row = np.unique(hashes[rows], return_index=True, return_inverse=True)
    earliest = rows[first[of_row]]
    again = earliest != rows
    pairs = zip(rows[again][:FIRST_OFFENDERS].tolist(), earliest[again][:FIRST_OFFENDERS].tolist(), strict=True)
    return Offenders.of(rows[again]), tuple(pairs)


def _label_lines(uri: str, labels: Labels) -> Iterator[str]:
    """Lines on the labels of a store; none without pids."""
    if "pids" not in labels:
        return
    pids, camids, cameras = labels["pids"], labels.get("camids"), "no cameras"
    if camids is not None:
        cameras = f"{counted(np.unique(camids).size, 'camera')} ({camids.min()} to {camids.max()})"
    yield f"identities: {np.unique(pids[pids != -1]).size} ({pids.min()} to {pids.max()}), {cameras}"
    junk, distractors = (Offenders.of(np.flatnonzero(pids == pid)) for pid in (-1, 0))
    yield f"junk (pid -1): {junk}; distractors (pid 0): {distractors}"
    repeated = {by: Offenders.of(repeated_rows(labels[by])) for by in NAMES if by in labels}
    for by, rows in repeated.items():
        if rows:
            yield f"{item_name(by)}s that an earlier row has: {rows}"
    for name, values in labels.items():
        if name.startswith(COLUMN_PREFIX):
            yield f"column {name.removeprefix(COLUMN_PREFIX)}: {np.unique(values).size} distinct values"
    for by, rows in repeated.items():
        if rows:
            yield f"note: {keep_first(uri, by)}, by {item_name(by)}"
