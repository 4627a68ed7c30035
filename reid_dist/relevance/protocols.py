"""Protocols: which gallery items are relevant to a query, which are junk, and what a query without positives means.

A protocol is a value composed of parts: rules that make items junk, what an invalid query is worth, the CMC and AP
families it reports.  Relevance is assigned from labels alone or from ground-truth lists (see
`reid_dist.relevance.assignment`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np

from reid_dist.core.numeric import is_whole
from reid_dist.core.parameters import Parameter
from reid_dist.core.registry import Registry, unknown_name
from reid_dist.errors import InputError
from reid_dist.relevance.groups import Collapse

JUNK_PID = -1

# Index 0 denotes a valid query.  The order is part of the meaning of `Relevance.reason`.
CAMERA_NOT_COUNTED = "camera_not_counted"
REASONS = ("", "no_positive_in_gallery", "only_same_camera_positives", "all_junk", CAMERA_NOT_COUNTED)

NOT_COUNTED: Final = REASONS.index(CAMERA_NOT_COUNTED)
"""Number of the reason of queries that a protocol does not count; all others make impostors."""

LEFT_OUT: Final = "left out"
ZERO: Final = "counts as 0"
InvalidQuery = Literal["left out", "counts as 0"]
CmcFamily = Literal["CMC", "CMC_allshots", "CMC_single_shot"]
ApFamily = Literal["mAP", "mAP_trapezoid"]

JunkRule = tuple[str, ...]
"""Labels (``pid``, ``camid``, ``item_id`` or the name of a label column) that query and item must all share.

A label after ``!`` must differ instead: ``(pid, !clothes)``.
"""

NOT = "!"
"""Before a label of a junk rule in which query and item must differ."""

SAME_CAMERA: JunkRule = ("pid", "camid")
OWN_ROW: JunkRule = ("item_id",)
WHOLE_CAMERA: JunkRule = ("camid",)


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol, composed of its parts.

    Attributes
    ----------
    name, summary, source
        As in every registry.
    junk
        An item is junk for a query if, for one of these rules, they agree in all labels and differ in those after
        ``!``.
    junk_pid
        Gallery items with this pid, or one of several, are junk for every query; None for no such pid.
    query_cameras, gallery_cameras
        Cameras that count; None for all.  Queries from other cameras are left out; items from other cameras are junk.
    merged_cameras
        Groups of cameras that junk rules treat as one camera: ``((2, 3),)`` in SYSU-MM01.
    relevant_lists, junk_lists
        If relevance comes from a ground truth: which of its lists are relevant, and which are junk.
    invalid_query
        How a query without relevant items is treated: ``left out`` of every mean, or ``counts as 0``.
    cmc_family, ap_family
        The curve and the average precision that the protocol reports.
    reported
        Further reported metrics.
    collapse
        Label by which gallery items are grouped into one entry of the ranking, such as ``pid``, or ``CMC:pid`` for only
        one metric; None ranks single items.  See `reid_dist.relevance.groups`.
    """

    name: str
    summary: str
    source: str
    junk: Annotated[
        tuple[JunkRule, ...], Parameter(help="Labels that an item must share with the query to be junk, rule by rule.")
    ] = ()
    junk_pid: int | tuple[int, ...] | None = JUNK_PID
    query_cameras: tuple[int, ...] | None = None
    gallery_cameras: tuple[int, ...] | None = None
    merged_cameras: Annotated[
        tuple[tuple[int, ...], ...],
        Parameter(help="Groups of cameras at one place, which junk rules take for one camera."),
    ] = ()
    relevant_lists: tuple[str, ...] = ()
    junk_lists: tuple[str, ...] = ()
    invalid_query: InvalidQuery = LEFT_OUT
    cmc_family: CmcFamily = "CMC"
    ap_family: ApFamily = "mAP"
    reported: tuple[str, ...] = ()
    collapse: Annotated[str | None, Parameter(help="Label of gallery items that are one entry of the ranking.")] = None

    @property
    def is_listed(self) -> bool:
        """Whether relevance comes from a ground truth instead of labels."""
        return bool(self.relevant_lists)

    @property
    def junk_pids(self) -> tuple[int, ...]:
        """All pids of `junk_pid`."""
        if self.junk_pid is None:
            return ()
        return self.junk_pid if isinstance(self.junk_pid, tuple) else (self.junk_pid,)

    @property
    def junk_pid_in_words(self) -> str:
        """All pids of `junk_pid`: ``pid -1 or 0``."""
        return f"pid {' or '.join(map(str, self.junk_pids))}"

    @property
    def needs_camids(self) -> bool:
        """Whether both sets must have camids."""
        return self.counts_cameras or "camid" in self._labels

    @property
    def counts_cameras(self) -> bool:
        """Whether the rules depend on camera numbers."""
        return bool(self.query_cameras is not None or self.gallery_cameras is not None or self.merged_cameras)

    @property
    def needs_item_ids(self) -> bool:
        """Whether items are matched by item id."""
        return any("item_id" in rule for rule in self.junk)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Label columns that the rules use."""
        return tuple(sorted(self._labels - {"pid", "camid", "item_id"}))

    @property
    def grouping_columns(self) -> tuple[str, ...]:
        """Label columns by which gallery items are grouped."""
        label = None if self.collapse is None else Collapse.parse(self.collapse).label
        return () if label in (None, "pid", "camid") else (str(label),)

    @property
    def _labels(self) -> set[str]:
        """Labels of all rules."""
        return {label.removeprefix(NOT) for rule in self.junk for label in rule}

    @property
    def zero_for_invalid(self) -> bool:
        """Whether an invalid query counts as 0 in every mean."""
        return self.invalid_query == ZERO

    @property
    def relevant(self) -> str:
        """Description of the relevant items."""
        if self.is_listed:
            return f"listed as {' or '.join(self.relevant_lists)}"
        if SAME_CAMERA in self.junk or WHOLE_CAMERA in self.junk:
            others = [_in_words(rule) for rule in self.junk if rule not in (SAME_CAMERA, WHOLE_CAMERA)]
            return "same pid, other camid" + (f", not junk by {', '.join(others)}" if others else "")
        if OWN_ROW in self.junk and len(self.junk) == 1:
            return "same pid, not itself"
        return "same pid, not junk" if self.junk else "same pid"

    @property
    def junk_in_words(self) -> str:
        """Description of the junk items."""
        if self.is_listed:
            return f"listed as {' or '.join(self.junk_lists)}"
        words = {OWN_ROW: "the query's own row", WHOLE_CAMERA: "every item of the query's camera"}
        parts = [words.get(rule, f"same {_in_words(rule)}") for rule in self.junk]
        parts += [self.junk_pid_in_words] if self.junk_pids else []
        if self.gallery_cameras is not None:
            parts.append(f"cameras other than {', '.join(map(str, self.gallery_cameras))}")
        parts += [f"cameras {' and '.join(map(str, group))} count as one" for group in self.merged_cameras]
        return "; ".join(parts) or "none"

    def describe(self) -> dict[str, str]:
        """Return its description for reports."""
        described = {
            "name": self.name,
            "summary": self.summary,
            "source": self.source,
            "relevant": self.relevant,
            "junk": self.junk_in_words,
            "invalid_query": self.invalid_query,
            "cmc_family": self.cmc_family,
            "ap_family": self.ap_family,
        }
        if self.query_cameras is not None:
            described["query_cameras"] = ", ".join(map(str, self.query_cameras))
        if self.collapse is not None:
            described["collapse"] = self.collapse
            described["ranked"] = Collapse.parse(self.collapse).in_words
        return described


def _in_words(rule: JunkRule) -> str:
    """Return the labels of a junk rule: ``pid and other clothes``."""
    shared = [label for label in rule if not label.startswith(NOT)]
    return " and ".join([*shared, *(f"other {label.removeprefix(NOT)}" for label in rule if label.startswith(NOT))])


def compose_protocol(name: str, *, base: Protocol | str | None = None, **parts: Any) -> Protocol:
    """Compose your own protocol from its parts.

    Parameters
    ----------
    name
        Name in reports.
    base
        A protocol, or its name, to start from; None starts with every item of the query's pid relevant and pid -1 junk.
    **parts
        Fields of `Protocol` by name.  Lists and arrays are accepted for tuples.

    Raises
    ------
    UnknownNameError
        If a part or the base does not exist.
    InputError
        If a part has a value that cannot be used; the message names the allowed values.
    """
    if not (isinstance(name, str) and name):
        raise InputError(f"a protocol needs a name, found {name!r}")
    if name in PROTOCOLS:
        raise InputError(f"{name!r} is a protocol already, and reports name protocols only; choose a new name")
    known = [field for field in Protocol.__dataclass_fields__ if field != "name"]
    for part in parts:
        if part not in known:
            raise unknown_name("part of a protocol", part, known)
    if isinstance(base, str):
        base = PROTOCOLS.get(base)
    # Lists leave no use for junk by labels.
    junk_pid = None if parts.get("relevant_lists") else JUNK_PID
    start = Protocol(name, "composed of its parts", "this job", junk_pid=junk_pid)
    if base is not None:
        changed = f" with other {', '.join(parts)}" if parts else ""
        start = replace(base, summary=f"{base.name}{changed}", source=f"this job; {base.source}")
    protocol = replace(start, **{"name": name, **{part: frozen(value) for part, value in parts.items()}})
    _refuse_unusable(protocol)
    return protocol


def frozen(value: Any) -> Any:
    """Lists and arrays as the tuples of a value."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(frozen, value)) if isinstance(value, list | tuple | range) else value


def _refuse_unusable(protocol: Protocol) -> None:
    def refuse(part: str, wanted: str) -> None:
        raise InputError(f"protocol {protocol.name!r}: {part} must {wanted}, found {getattr(protocol, part)!r}")

    for part, kind in {"invalid_query": InvalidQuery, "cmc_family": CmcFamily, "ap_family": ApFamily}.items():
        known = get_args(kind)
        if getattr(protocol, part) not in known:
            refuse(part, f"be one of {', '.join(known)}")
    for part in ("summary", "source"):
        if not isinstance(getattr(protocol, part), str):
            refuse(part, "be a text")
    for part in ("relevant_lists", "junk_lists", "reported"):
        if not _is_list_of(str, getattr(protocol, part)):
            refuse(part, "be a list of names")
    if not all(map(is_whole, protocol.junk_pids)):
        refuse("junk_pid", "be a whole number, a list of these, or None for none")
    for part in ("query_cameras", "gallery_cameras"):
        cameras = getattr(protocol, part)
        if cameras is not None and not (_is_list_of(int, cameras) and cameras):
            refuse(part, "list whole numbers")
    merged = protocol.merged_cameras
    if not (_is_list_of(tuple, merged) and all(_is_list_of(int, group) and len(group) > 1 for group in merged)):
        refuse("merged_cameras", "list groups of whole numbers, such as [[2, 3]]")
    if len({camera for group in merged for camera in group}) < sum(map(len, merged)):
        refuse("merged_cameras", "name each camera once")
    if merged and not any("camid" in rule or f"{NOT}camid" in rule for rule in protocol.junk):
        refuse("merged_cameras", "belong to a junk rule that names camid")
    if protocol.collapse is not None:
        Collapse.parse(protocol.collapse)
    if protocol.query_cameras is not None and protocol.zero_for_invalid:
        raise InputError(
            f"protocol {protocol.name!r}: query_cameras leave queries out, and with invalid_query {ZERO!r} they would "
            "count as 0; give a query set of only these cameras"
        )
    if not _is_list_of(object, protocol.junk):
        refuse("junk", "be a list of rules, such as [[pid, camid]]")
    _refuse_rules(protocol)
    _refuse_lists(protocol)


def _refuse_rules(protocol: Protocol) -> None:
    """Refuse junk rules that cannot be evaluated."""
    whole = []
    for rule in protocol.junk:
        if not (_is_list_of(str, rule) and rule):
            raise InputError(
                f"protocol {protocol.name!r}: a junk rule is a list of labels, such as [pid, camid], found {rule!r}"
            )
        if {"item_id", f"{NOT}item_id"} & set(rule) and rule != OWN_ROW:
            raise InputError(
                f"protocol {protocol.name!r}: item_id names a single item and must be the only label of its junk "
                f"rule, [item_id], found {rule!r}"
            )
        bare = [label.removeprefix(NOT) for label in rule]
        if len(set(bare)) < len(bare) or NOT + "pid" in rule or "" in bare:
            raise InputError(
                f"protocol {protocol.name!r}: a junk rule names each label once, and after {NOT} a camid or a label "
                f"column, such as [pid, {NOT}clothes], found {rule!r}"
            )
        if "pid" not in rule and rule != OWN_ROW:
            whole.append(rule)
    if any(len(rule) != 1 or rule[0].startswith(NOT) for rule in whole) or len(set(whole)) > 1:
        raise InputError(
            f"protocol {protocol.name!r}: beside rules that hold pid and the rule [item_id], one rule of a single "
            f"label can hide whole cameras (or another label) from a query; found {', '.join(map(str, whole))}"
        )


def _refuse_lists(protocol: Protocol) -> None:
    """Refuse a mixture of lists and labels: relevance comes from one of them."""
    if not protocol.is_listed:
        if protocol.junk_lists:
            raise InputError(
                f"protocol {protocol.name!r}: junk_lists belong to a protocol by lists; name its relevant_lists as well"
            )
        return
    known = sorted({name for other in PROTOCOLS for name in (*other.relevant_lists, *other.junk_lists)})
    for name in (*protocol.relevant_lists, *protocol.junk_lists):
        if name not in known:
            raise unknown_name("list of a ground truth", name, known)
    both = sorted(set(protocol.relevant_lists) & set(protocol.junk_lists))
    if both:
        raise InputError(f"protocol {protocol.name!r}: {', '.join(both)} cannot be relevant and junk")
    labels = [
        part
        for part in ("junk", "junk_pid", "query_cameras", "gallery_cameras", "merged_cameras")
        if getattr(protocol, part) not in (None, ())
    ]
    if labels:
        raise InputError(
            f"protocol {protocol.name!r} goes by lists, so {', '.join(labels)} would have no effect; start from a "
            "protocol by lists, such as oxford, or leave relevant_lists out"
        )


def _is_list_of(kind: type, values: object) -> bool:
    return isinstance(values, tuple) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in values
    )


PROTOCOLS: Registry[Protocol] = Registry("protocol")

MARKET1501: Final = Protocol(
    name="market1501",
    summary="cross-camera search: items of the query's own camera with its pid are junk, as is pid -1",
    source="Zheng et al., ICCV 2015, as torchreid and fast-reid compute it",
    junk=(SAME_CAMERA,),
)
_OXFORD: Final = Protocol(
    name="oxford",
    summary="lists good, ok and junk per query (ground_truth); good and ok are relevant",
    source="Philbin et al., CVPR 2007 and 2008 (Oxford5k, Paris6k), `compute_ap`",
    junk_pid=None,
    relevant_lists=("good", "ok"),
    junk_lists=("junk",),
    ap_family="mAP_trapezoid",
)
_REVISITOP = "Radenovic et al., CVPR 2018 (ROxford, RParis)"
_REVISITED = replace(_OXFORD, source=_REVISITOP, reported=("P_clipped@1", "P_clipped@5", "P_clipped@10"))

for _protocol in (
    MARKET1501,
    replace(
        MARKET1501,
        name="market1501_matlab",
        summary="market1501 with means over all queries, an invalid one at 0, and the trapezoid rule",
        source="the original Market-1501 MATLAB code, as layumi's baseline computes it",
        invalid_query=ZERO,
        ap_family="mAP_trapezoid",
    ),
    replace(
        MARKET1501,
        name="allshots",
        summary="market1501 with a CMC over all matches of a query, each ranked among the negatives",
        source="open-reid and cluster-contrast, `cmc` without `first_match_break`",
        cmc_family="CMC_allshots",
    ),
    replace(
        MARKET1501,
        name="cuhk03",
        summary="market1501 with one random gallery item per identity in the CMC: its expectation, or seeded draws",
        source="Li et al., CVPR 2014 (single-shot CUHK03), as torchreid computes it by ten draws",
        cmc_family="CMC_single_shot",
    ),
    Protocol(
        name="cuhk03_separate_cameras",
        summary="cuhk03 with every item of the query's camera taken out of the gallery",
        source="Li et al., CVPR 2014; open-reid `separate_camera_set` with `single_gallery_shot`",
        junk=(WHOLE_CAMERA,),
        cmc_family="CMC_single_shot",
    ),
    Protocol(
        name="no_cameras",
        summary="every item of the query's pid is relevant; for sets without cameras",
        source="general image retrieval; pid -1 is junk as in Market-1501",
    ),
    Protocol(
        name="same_set",
        summary="query set = gallery set: the query's own row, found by item id or else by image path, is junk",
        source="leave-one-out retrieval, as on CUB-200, SOP or VeRi subsets",
        junk=(OWN_ROW,),
    ),
    _OXFORD,
    replace(
        _REVISITED,
        name="revisitop_easy",
        summary="lists easy, hard and junk per query (ground_truth); easy is relevant, hard is junk as well",
        relevant_lists=("easy",),
        junk_lists=("junk", "hard"),
    ),
    replace(
        _REVISITED,
        name="revisitop_medium",
        summary="lists easy, hard and junk per query (ground_truth); easy and hard are relevant",
        relevant_lists=("easy", "hard"),
        junk_lists=("junk",),
    ),
    replace(
        _REVISITED,
        name="revisitop_hard",
        summary="lists easy, hard and junk per query (ground_truth); hard is relevant, easy is junk as well",
        relevant_lists=("hard",),
        junk_lists=("junk", "easy"),
    ),
):
    PROTOCOLS.register(_protocol)
