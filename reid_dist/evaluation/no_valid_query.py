"""Messages for runs without a valid query: the reasons, and what to check."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.core.model import Labels
from reid_dist.evaluation.pid_hints import disjoint_pid_hints
from reid_dist.relevance.protocols import SAME_CAMERA, WHOLE_CAMERA, Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.overlap import shared_items

_MOST_CAMERAS = 12


def explain_no_valid_query(
    query: LabelledSet,
    gallery: LabelledSet,
    labels: tuple[Labels, Labels],
    protocol: Protocol,
    invalid: Mapping[str, int],
) -> str:
    """Message with the reasons and what to check; `labels` are numbered alike, `invalid` counts queries by reason."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in invalid.items()) or "there are no queries"
    found = f"no query has a relevant gallery item ({reasons})"
    if protocol.is_listed:
        lists = " or ".join(protocol.relevant_lists)
        return f"{found}: every list of {lists} in the ground truth is empty"
    near, far = labels
    shared = np.setdiff1d(np.intersect1d(near.pids, far.pids), protocol.junk_pids)
    pids = f"query pids {_span(query)}, gallery pids {_span(gallery)}, {len(shared)} in common"
    hints = [
        *_pid_hints(query, gallery, labels, protocol, len(shared)),
        *_camera_hints(query, gallery, labels, protocol, invalid),
    ]
    return f"{found}: {pids}; {'; '.join(hints) or 'check the labels'}"


def _span(side: LabelledSet) -> str:
    """First and last identity, and their number."""
    kinds = np.unique(side.pids)
    if not len(kinds):
        return "none"
    names = side.pid_names
    ends = [kinds[0], kinds[-1]] if names is None else [_name(kind, names) for kind in (kinds[0], kinds[-1])]
    return f"span {ends[0]}..{ends[1]} ({counted(len(kinds), 'identity')})"


def _name(number: np.int64, names: tuple[str, ...]) -> str:
    return repr(names[int(number) - 1]) if number > 0 else str(number)


def _pid_hints(
    query: LabelledSet, gallery: LabelledSet, labels: tuple[Labels, Labels], protocol: Protocol, n_shared: int
) -> list[str]:
    hints = []
    near, far = labels
    junk = protocol.junk_pid_in_words
    for side, other, pids in (("queries", "gallery rows", near.pids), ("gallery rows", "queries", far.pids)):
        n_junk = int(np.isin(pids, protocol.junk_pids).sum())
        if n_junk and n_junk == len(pids):
            swap = f", or are {side} and {other} exchanged" if side == "queries" else ""
            hints.append(f"all {side} have {junk}, which marks junk: are the labels meant so{swap}?")
        elif n_junk and not n_shared:
            hints.append(f"{n_junk} {side} have {junk}, which marks junk: are these labels meant so?")
    if not n_shared:
        hints.append("check that both sets are of one split and number their identities alike")
        hints += disjoint_pid_hints(query, gallery)
    return hints


def _camera_hints(
    query: LabelledSet,
    gallery: LabelledSet,
    labels: tuple[Labels, Labels],
    protocol: Protocol,
    invalid: Mapping[str, int],
) -> list[str]:
    near, far = (side.camids for side in labels)
    if near is None or far is None or not protocol.needs_camids:
        return []
    hints = []
    cameras = np.union1d(near, far)
    named = _cameras(query, gallery)
    if invalid.get("camera_not_counted"):
        hints.append(f"the protocol counts queries of cameras {list(protocol.query_cameras or ())}, found {named}")
    if protocol.gallery_cameras is not None and not np.isin(far, protocol.gallery_cameras).any():
        hints.append(f"the protocol counts gallery rows of cameras {list(protocol.gallery_cameras)}, found {named}")
    junk_camera = WHOLE_CAMERA in protocol.junk
    if len(cameras) == 1 and (junk_camera or SAME_CAMERA in protocol.junk):
        what = "every gallery row" if junk_camera else "every gallery row of its identity"
        hints.append(
            f"there is only one camera ({named}), so that {what} has the query's camera and is junk under "
            f"{protocol.name!r}: {_without_cameras(query, gallery)}"
        )
    elif invalid.get("only_same_camera_positives"):
        hints.append(
            f"identities are in the gallery under the query's own camera alone (cameras found: {named}): check that "
            "camids are cameras, that both sets number them alike, and that both are of one split"
        )
    return hints


def _without_cameras(query: LabelledSet, gallery: LabelledSet) -> str:
    """Which protocol fits one camera: own rows must not count as matches."""
    shared = shared_items(query, gallery)
    if shared is None:
        return "use the protocol 'no_cameras', or 'same_set' if queries are gallery rows as well"
    if shared.by == "image_paths":
        return (
            f"{shared.n_query} queries are gallery rows as well, by image path: give the paths as item_ids to both "
            "sides and use the protocol 'same_set'"
        )
    return f"{shared.n_query} queries are gallery rows as well: use the protocol 'same_set'"


def _cameras(query: LabelledSet, gallery: LabelledSet) -> str:
    """Cameras of both sides as they were given."""
    kinds: dict[str, None] = {}
    for side in (query, gallery):
        camids: NDArray[np.int64] | None = side.camids
        if camids is not None:
            names = side.camid_names
            found = np.unique(camids).tolist()
            kinds |= dict.fromkeys(str(each) if names is None or each <= 0 else names[each - 1] for each in found)
    return first_few(list(kinds), _MOST_CAMERAS)
