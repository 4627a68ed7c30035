"""The spec of a result: all that it depends on, as one mapping of plain values that is stored with the result.

It is made once, before anything is computed.  A finished result is compared with a job by it, and what computes more of
the same ranking reads its options from it.  Values are exact: two parameters that differ in the last bit differ here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.options import OPTIONS, EvaluationOptions, recorded, requests
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports.documents import plain
from reid_dist.stages.expansion import spelled
from reid_dist.stores import LabelledSet

Spec = Mapping[str, Any]

# Ground truths are compared by their content, and distances and lists take the place of features.
_INPUTS: Final = ("query", "gallery", "ground_truth", "distances", "lists")


def ranking_spec(checked: CheckedOptions, query: LabelledSet, gallery: LabelledSet, **more: Any) -> dict[str, Any]:
    """Spec of an evaluation of two sides; `more` are further entries, or others in the place of its own.

    Where distances or lists take the place of features, `more` has the digest of their content, and ``distance=None``.
    """
    return plain_spec(
        {
            "query": query.content_digest,
            "gallery": gallery.content_digest,
            "protocol": asdict(checked.protocol),
            "ground_truth": None if checked.truth is None else checked.truth.content_digest,
            "distance": checked.values["distance"],
            "expand": spelled(checked.expand) if checked.expand else None,
            "rerank": None if checked.rerank is None else str(checked.rerank),
            **recorded(checked.values),
            **more,
        }
    )


def plain_spec(entries: Spec) -> dict[str, Any]:
    """Entries of a spec as plain values, as they are after they were stored."""
    spec: dict[str, Any] = plain(entries)
    return spec


def differing(wanted: Spec, found: Spec) -> list[str]:
    """Names of the entries in which two specs differ; one that requests nothing is as one that is missing."""
    return [name for name in dict.fromkeys([*wanted, *found]) if entry_text(wanted, name) != entry_text(found, name)]


def entry_text(spec: Spec, name: str) -> str:
    """An entry as JSON, in which 1 and 1.0 differ, as they do as sizes of a gallery; of a missing one, null."""
    value = spec.get(name)
    return json.dumps(plain(value) if requests(value) else None, sort_keys=True)


def options_of(spec: Spec) -> EvaluationOptions:
    """Options of `evaluate` of a spec, except for its ground truth, of which it has the digest alone."""
    protocol = Protocol(**{name: _frozen(value) for name, value in spec["protocol"].items()})
    values = {name: value for name, value in spec.items() if name in OPTIONS and name not in _INPUTS}
    return cast("EvaluationOptions", values | {"protocol": protocol, "collapse": protocol.collapse})


def _frozen(value: Any) -> Any:
    """Lists of JSON as the tuples of a protocol."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
