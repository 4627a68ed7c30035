"""What features and distances go through before they are ranked, in a table of conventions: expansion and re-ranking.

One text names both, as ``dba(k=5)+k_reciprocal``: steps of an expansion, treatments of features among them, and a
re-ranking at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.core.findings import Finding, info
from reid_dist.core.registry import unknown_name
from reid_dist.core.specs import parse_spec
from reid_dist.engine.distances import Distance
from reid_dist.errors import InputError
from reid_dist.stages.expansion.expansion_steps import (
    EXPANSIONS,
    LENGTH_1,
    TREATMENTS,
    Step,
    make_step,
    parse_expand,
    spelled,
)
from reid_dist.stages.expansion.lengths import refuse_unlike_lengths
from reid_dist.stages.reranking.rerankers import RERANKERS, Reranking, make_rerank
from reid_dist.stores import FeatureSet

EVERY_TREATMENT: Final = "treatments"
"""The name that means every treatment of features, each by itself."""

MOST: Final = 32
"""Passes of a table, at most: one for each distance, and for each of the stages under each distance."""


@dataclass(frozen=True)
class Stages:
    """Expansion and re-ranking of one pass; neither of them for the features as they are."""

    expand: tuple[Step, ...] = ()
    rerank: Reranking | None = None

    @classmethod
    def parse(cls, text: str) -> Stages:
        """Read steps of an expansion, and a re-ranking after them; errors are those of both."""
        *before, last = parse_spec("re-ranking or expansion", text, nested=True)
        known = [*RERANKERS.names(), *EXPANSIONS.names()]
        for call in (*before, last):
            if call.name == EVERY_TREATMENT:
                raise InputError(f"{call.name} stands for each of {', '.join(TREATMENTS)}, and alone; found {text!r}")
            if call.name not in known:
                raise unknown_name("re-ranking or expansion", call.name, [*known, EVERY_TREATMENT])
        if misplaced := [call.name for call in before if call.name in RERANKERS]:
            raise InputError(f"{misplaced[0]} is a re-ranking, which comes last and alone; found {text!r}")
        rerank = make_rerank(last) if last.name in RERANKERS else None
        calls = before if rerank is not None else [*before, last]
        return cls(parse_expand([make_step(call.name, call.values) for call in calls]), rerank)

    @property
    def options(self) -> dict[str, Any]:
        """The options of `evaluate` that reproduce it, with every parameter: ``expand``, ``rerank``."""
        expand = {"expand": spelled(self.expand)} if self.expand else {}
        return {**expand, **({} if self.rerank is None else {"rerank": str(self.rerank)})}

    @property
    def name(self) -> str:
        """Both in one text, which is read as the same; empty for neither."""
        return "+".join(self.options.values())

    def refuse_unfit(self, query: FeatureSet, gallery: FeatureSet, distance: Distance) -> None:
        """Refuse a distance under which the stages are not defined."""
        refuse_unlike_lengths(query, gallery, self.expand, distance)
        if self.rerank is not None:
            self.rerank.graph_distance(distance)


PLAIN: Final = Stages()


def parse_also(given: str | Sequence[str] | None) -> list[Stages]:
    """Read what is tried besides the features as they are, each once."""
    texts = [] if given is None else [given] if isinstance(given, str) else list(given)
    single = [name for text in texts for name in (TREATMENTS if text == EVERY_TREATMENT else (text,))]
    return list(dict.fromkeys(Stages.parse(text) for text in single))


def passes_of(
    query: FeatureSet,
    gallery: FeatureSet,
    measures: Sequence[Distance],
    also: Sequence[Stages],
    notes: list[Finding],
) -> list[tuple[Distance, Stages]]:
    """Passes of a table: the features as they are under each distance, then each of the stages under those it allows.

    A distance under which stages are not defined, or make no difference, is left out, with a note; `InputError` if they
    are defined under no distance, or if there are too many passes.
    """
    found = [(measure, PLAIN) for measure in measures]
    for stages in also:
        fit, problems = [], []
        for measure in measures:
            if stages.name == LENGTH_1 and not measure.sees_length:
                notes.append(info("no_lengths", stages=stages.name, distance=measure.name))
                continue
            try:
                stages.refuse_unfit(query, gallery, measure)
            except InputError as error:
                problems.append((measure, error))
            else:
                fit.append((measure, stages))
        if problems and not fit:
            raise problems[0][1]
        notes += [
            info("unfit_stages", stages=stages.name, distance=measure.name, why=str(error))
            for measure, error in problems
        ]
        found += fit
    if len(found) > MOST:
        raise InputError(
            f"the table takes {len(found)} passes, one for each distance and each of what is also tried, and {MOST} at "
            "most; name fewer, or one distance"
        )
    return found
