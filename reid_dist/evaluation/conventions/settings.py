"""The settings that two sets allow: registered protocols, and those composed of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reid_dist.core.formatting import counted, have
from reid_dist.engine.checks import check_labels, joined_labels
from reid_dist.errors import InputError
from reid_dist.relevance.protocols import JUNK_PID, OWN_ROW, PROTOCOLS, SAME_CAMERA, ZERO, Protocol, compose_protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.repeated_items import shared_items

DISTRACTOR_PID: Final = 0


@dataclass(frozen=True)
class Setting:
    """A protocol, and what it is composed of: `parts` differ from those of the protocol `base`; none if registered."""

    protocol: Protocol
    base: str
    parts: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the protocol; of a composed one, its base and what differs."""
        return self.protocol.name

    def describe(self) -> dict[str, Any]:
        """The protocol as a pipeline file has it: a name, or a name with base and parts."""
        return {"name": self.name, **({"base": self.base, **self.parts} if self.parts else {})}

    @classmethod
    def of(cls, base: str, words: str = "", **parts: Any) -> Setting:
        """Compose a protocol, or take the registered one that has these parts; `words` say what differs."""
        if (base, parts) == ("market1501", {"invalid_query": ZERO}):
            base, parts = "market1501_matlab", {}
        if not parts:
            return cls(PROTOCOLS.get(base), base, {})
        return cls(compose_protocol(f"{base}, {words}", base=base, **parts), base, parts)


def settings_for(
    query: LabelledSet, gallery: LabelledSet, *, single_shot: bool
) -> tuple[list[tuple[Setting, Setting]], list[str]]:
    """Settings by what is relevant and junk, each without invalid queries and with these at 0; and notes on others."""
    notes: list[str] = []
    found = []
    for base, own_words, own_parts in _bases(query, gallery, notes, single_shot=single_shot):
        # Those of CUHK03 differ from market1501 in the CMC and in the cameras; each takes as long as all others.
        rules = [("", {})] if PROTOCOLS.get(base).cmc_family == "CMC_single_shot" else _junk_pids(gallery, notes)
        for pid_words, pid_parts in rules:
            words = [each for each in (own_words, pid_words) if each]
            parts = {**own_parts, **pid_parts}
            found.append(
                (
                    Setting.of(base, ", ".join(words), **parts),
                    Setting.of(base, ", ".join([*words, "invalid at 0"]), **parts, invalid_query=ZERO),
                )
            )
    return found, list(dict.fromkeys(notes))


def _bases(
    query: LabelledSet, gallery: LabelledSet, notes: list[str], *, single_shot: bool
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Conventions of cameras and of own rows: a protocol, words for what differs, and parts."""
    unfit = _unfit_cameras(query, gallery)
    if unfit:
        notes.append(
            f"{unfit}: conventions of cameras (market1501, market1501_matlab, allshots, cuhk03, "
            "cuhk03_separate_cameras) are left out"
        )
    else:
        yield "market1501", "", {}
        if single_shot:
            yield "cuhk03", "", {}
            yield "cuhk03_separate_cameras", "", {}
        else:
            notes.append("conventions of CUHK03 (CMC_single_shot) are left out: --single-shot, single_shot=True")
    yield "no_cameras", "", {}
    if not _has_own_rows(query, gallery, notes):
        return
    yield "same_set", "", {}
    if not unfit:
        yield "market1501", "own row junk", {"junk": (SAME_CAMERA, OWN_ROW)}


def _unfit_cameras(query: LabelledSet, gallery: LabelledSet) -> str:
    """Why cameras of the two sets cannot be compared; empty if they can."""
    missing = [name for name, side in (("query", query), ("gallery", gallery)) if side.camids is None]
    if missing:
        return f"{' and '.join(missing)} {have(missing)} no camids"
    # Identities that cannot be compared are refused here.
    joined_labels(query, gallery, PROTOCOLS.get("no_cameras"), camids=False)
    try:
        joined_labels(query, gallery, PROTOCOLS.get("market1501"), camids=False)
    except InputError as error:
        return str(error)
    return ""


def _has_own_rows(query: LabelledSet, gallery: LabelledSet, notes: list[str]) -> bool:
    """Whether queries are gallery rows as well, and can be found there."""
    shared = shared_items(query, gallery)
    if shared is None:
        return False
    try:
        check_labels(query, gallery, PROTOCOLS.get("same_set"))
    except InputError:
        rows = "is a gallery row" if shared.n_query == 1 else "are gallery rows"
        by = shared.by.replace("_", " ").removesuffix("s")
        notes.append(
            f"{counted(shared.n_query, 'query')} {rows} as well, by {by}: conventions without own rows (same_set) are "
            "left out; give the paths as item_ids to both sides for them"
        )
        return False
    return True


def _junk_pids(gallery: LabelledSet, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Conventions of pid -1 and pid 0: words for what differs from pid -1 as junk, and parts."""
    n_junk, n_distractor = (int(np.count_nonzero(gallery.pids == pid)) for pid in (JUNK_PID, DISTRACTOR_PID))
    yield "", {}
    if n_junk:
        yield f"pid {JUNK_PID} kept", {"junk_pid": None}
    else:
        notes.append(f"no gallery row has pid {JUNK_PID}: whether these are junk makes no difference")
    if n_distractor:
        yield f"pid {JUNK_PID} and {DISTRACTOR_PID} junk", {"junk_pid": (JUNK_PID, DISTRACTOR_PID)}
    else:
        notes.append(f"no gallery row has pid {DISTRACTOR_PID}: whether these are junk makes no difference")
