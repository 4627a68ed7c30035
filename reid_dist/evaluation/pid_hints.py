"""Why two sets have no identity in common: numbers that are shifted, names in two spellings, labels not from names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError
from reid_dist.stores import LabelledSet
from reid_dist.stores.importers.name_layouts import LAYOUTS, NameLayout, labels_of_names

# Share of the query's identities that have to be in the gallery: a split can lack some.
_LEAST_SHARE: Final = 0.9
# Share of the gallery's identities that shifted ones have to be: some of a long range of numbers prove nothing.
_LEAST_SHARE_OF_RANGE: Final = 0.5
_NUMBERS: Final = re.compile(r"[0-9]+")
_SAMPLE: Final = 256


def disjoint_pid_hints(query: LabelledSet, gallery: LabelledSet) -> Iterator[str]:
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
