"""Messages for runs without a valid query: the reasons, and what to check."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.core.model import UNKNOWN_CAMERA, Labels
from reid_dist.errors import InputError
from reid_dist.relevance.protocols import CAMERA_NOT_COUNTED, SAME_CAMERA, WHOLE_CAMERA, Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.importers.image_names import labels_of_names
from reid_dist.stores.importers.name_layouts import LAYOUTS, NameLayout
from reid_dist.stores.labels import given_labels
from reid_dist.stores.repeated_items import named_by_paths, shared_items

_MOST_CAMERAS = 12
# Share of the query's identities that have to be in the gallery: a split can lack some.
_LEAST_SHARE: Final = 0.9
# Share of the gallery's identities that shifted ones have to be: some of a long range of numbers prove nothing.
_LEAST_SHARE_OF_RANGE: Final = 0.5
_NUMBERS: Final = re.compile(r"[0-9]+")
_SAMPLE: Final = 256


def explain_no_valid_query(
    query: LabelledSet,
    gallery: LabelledSet,
    labels: tuple[Labels, Labels],
    protocol: Protocol,
    invalid: Mapping[str, int],
) -> InputError:
    """Error with the reasons and what to check; `labels` are numbered alike, `invalid` counts queries by reason."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in invalid.items()) or "there are no queries"
    found = f"no query has a relevant gallery item ({reasons})"
    if protocol.is_listed:
        lists = " or ".join(protocol.relevant_lists)
        return InputError(f"{found}: every list of {lists} in the ground truth is empty")
    near, far = labels
    shared = np.setdiff1d(np.intersect1d(near.pids, far.pids), protocol.junk_pids)
    pids = (f"query pids: {_span(query)}", f"gallery pids: {_span(gallery)}", f"in both sets: {len(shared)}")
    hints = [
        *_pid_hints(query, gallery, labels, protocol, len(shared)),
        *_camera_hints(query, gallery, labels, protocol, invalid),
    ]
    return InputError(f"{found}; {hints[0] if hints else 'check the labels'}", details=(*hints[1:], *pids))


def _span(side: LabelledSet) -> str:
    """First and last identity, and their number."""
    kinds = np.unique(side.pids)
    if not len(kinds):
        return "none"
    names = side.pid_names
    ends = [kinds[0], kinds[-1]] if names is None else [_name(kind, names) for kind in (kinds[0], kinds[-1])]
    return f"{ends[0]}..{ends[1]} ({counted(len(kinds), 'identity')})"


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
        hints.append("check that both sets belong to the same split and use the same identity numbers")
        hints += _disjoint_pid_hints(query, gallery)
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
    if invalid.get(CAMERA_NOT_COUNTED):
        hints.append(f"the protocol counts queries of cameras {list(protocol.query_cameras or ())}, found {named}")
    if protocol.gallery_cameras is not None and not np.isin(far, protocol.gallery_cameras).any():
        hints.append(f"the protocol counts gallery rows of cameras {list(protocol.gallery_cameras)}, found {named}")
    junk_camera = WHOLE_CAMERA in protocol.junk
    one_camera = len(cameras) == 1 and UNKNOWN_CAMERA not in cameras
    if one_camera and (junk_camera or SAME_CAMERA in protocol.junk):
        what = "every gallery row" if junk_camera else "every gallery row of its identity"
        hints.append(
            f"there is only one camera ({named}), so that {what} has the query's camera and is junk under "
            f"{protocol.name!r}: {_without_cameras(query, gallery)}"
        )
    elif invalid.get("only_same_camera_positives"):
        hints.append(
            f"identities are in the gallery only under the query's own camera (cameras found: {named}): check that "
            "camids are cameras, that both sets number them alike, and that both are of one split"
        )
    return hints


def _without_cameras(query: LabelledSet, gallery: LabelledSet) -> str:
    """Which protocol fits one camera: own rows must not count as matches."""
    shared = shared_items(query, gallery)
    if shared is None:
        return "use the protocol 'no_cameras', or 'same_set' if queries are gallery rows as well"
    if shared.by == "image_paths" and not named_by_paths(query, gallery):
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
            kinds |= dict.fromkeys(map(str, given_labels(np.unique(camids), side.camid_names)))
    return first_few(list(kinds), _MOST_CAMERAS)


def _disjoint_pid_hints(query: LabelledSet, gallery: LabelledSet) -> Iterator[str]:
    """Yield what to do about sets without a common identity, as far as their labels show it."""
    names = query.pid_names, gallery.pid_names
    if names[0] is None or names[1] is None:
        yield from _shift_hint(query.pids, gallery.pids)
    else:
        yield from _spelling_hint(names[0], names[1])
    yield from _layout_hint(query, gallery)


def _shift_hint(query: NDArray[np.int64], gallery: NDArray[np.int64]) -> Iterator[str]:
    """Find a difference by which identities of the gallery are those of the query."""
    near, far = (np.unique(pids[pids > 0]) for pids in (query, gallery))
    if not len(near) or not len(far):
        return
    for shift in dict.fromkeys([int(far[0] - near[0]), int(far[-1] - near[-1])]):
        found = int(np.isin(near + shift, far).sum())
        if found >= max(_LEAST_SHARE * len(near), _LEAST_SHARE_OF_RANGE * len(far)):
            yield (
                f"{found} of the query pids {'plus' if shift > 0 else 'minus'} {abs(shift)} are gallery pids, if they "
                "denote the same identities"
            )
            return


def _spelling_hint(query: tuple[str, ...], gallery: tuple[str, ...]) -> Iterator[str]:
    """Find names that differ in letters, zeros or punctuation alone."""
    far = {_bare(name): name for name in gallery}
    near = {_bare(name): name for name in query}
    # Names with one number for several identities are no spellings of one another.
    if len(near) < _LEAST_SHARE * len(query) or len(far) < _LEAST_SHARE * len(gallery):
        return
    found = [key for key in near if key in far]
    if len(found) >= _LEAST_SHARE * len(query):
        first = found[0]
        yield (
            f"{counted(len(found), 'query pid')} may be gallery pids in another spelling, such as {near[first]!r} and "
            f"{far[first]!r}: write them alike"
        )


def _bare(name: str) -> tuple[int, ...] | str:
    """Numbers of a name, or its letters where it has none."""
    numbers = _NUMBERS.findall(name)
    return tuple(map(int, numbers)) if numbers else re.sub(r"[\W_]", "", name).casefold()


def _layout_hint(query: LabelledSet, gallery: LabelledSet) -> Iterator[str]:
    """Find a layout by which the image paths of both sets hold common identities."""
    if query.image_paths is None or gallery.image_paths is None:
        return
    for name in LAYOUTS.names():
        layout = LAYOUTS.get(name)
        near, far = (_pids_in(paths, layout) for paths in (query.image_paths, gallery.image_paths))
        if near and len(near & far) >= _LEAST_SHARE * len(near):
            yield (
                f"the image paths hold {len(near & far)} common pids in the layout {name!r}: `reid-dist ingest` with "
                f"--layout {name} reads the labels from them"
            )
            return


def _pids_in(paths: NDArray[np.str_], layout: NameLayout) -> set[str]:
    """Identities that paths hold in a layout; none if a path does not fit."""
    if "pid" not in layout.groups:
        return set()
    try:
        # Most layouts do not fit the first paths.
        labels_of_names(paths[:_SAMPLE], layout)
        found = labels_of_names(paths, layout)["pids"].texts.tolist()
    except InputError:
        return set()
    return {text for text in found if text not in ("-1", "0")}
