"""Nights of a suite as values: a level history in which something happens, without a database or an evaluation."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from reid_dist.nightly.history.history_values import (
    ALARM,
    GATES,
    Change,
    Code,
    Decider,
    Entry,
    Estimate,
    Finding,
    Outcome,
    Run,
    State,
)
from reid_dist.reports.comparison import ChangedQuery

FIRST = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
METRICS = {"mAP": 0.852, "mINP": 0.615, "CMC@1": 0.941, "CMC@5": 0.972, "CMC@10": 0.985}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def stamp(night: int, seconds: float = 0.0) -> str:
    return (FIRST + timedelta(days=night, seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def finding(gate: str, verdict: str = Outcome.SAME, code: str = "", **more: Any) -> Finding:
    """A finding with the code and the facts that its gate gives it."""
    facts: dict[str, tuple[str, dict[str, Any]]] = {
        "accuracy": (Code.TESTED, {"role": "last good", "effect": 0.005}),
        "trend": (Code.LINE, {"n_results": 14}),
        "speed": (Code.RATIO, {"bound": "noise"}),
        "memory": (Code.RATIO, {"bound": "noise"}),
    }
    known, found = facts[gate]
    return Finding(gate=gate, verdict=verdict, **{"code": code or known, "facts": {} if code else found} | more)


def cost(name: str, baseline: float, candidate: float, low: float, high: float, verdict: str = Outcome.SAME) -> Change:
    ratio: dict[str, Any] = {"difference": candidate / baseline, "low": low, "high": high, "verdict": verdict}
    return Change(name=name, baseline=baseline, candidate=candidate, **ratio, test=Decider.RUNS, n_units=10)


def entry(
    model: str = "resnet50",
    dataset: str = "market1501",
    job: str = "plain",
    *,
    night: int = 0,
    shift: float = 0.0,
    seconds: float = 123.0,
    peak_bytes: int = 2_040_109_465,
    features: str = "a",
    gated: bool = True,
    **more: Any,
) -> Entry:
    """A job that was done, and on which all gates agree that it is as it was."""
    draws = np.random.default_rng([night, *f"{model}/{dataset}/{job}".encode()])
    seconds, peak_bytes = seconds * (1 + 0.03 * draws.standard_normal()), int(peak_bytes * (1 + 0.01 * draws.random()))
    name = f"{model}/{dataset}/{job}"
    metrics = {
        each: Estimate(value + shift, value + shift - 0.011, value + shift + 0.011) for each, value in METRICS.items()
    }
    findings = (
        finding("accuracy", baseline=night, changes=tuple(same_change(each, metrics) for each in metrics)),
        finding("trend", baseline=1, changes=(same_change("mAP", metrics),)),
        finding("speed", changes=(cost("seconds", 123.0, seconds, 0.87, 1.15),)),
        finding("memory", changes=(cost("peak_bytes", 2.05e9, peak_bytes, 0.95, 1.05),)),
    )
    fields: dict[str, Any] = {
        "labels": {"backbone": model, "commit": "3f2a9c1"},
        "started": stamp(night, 60),
        "seconds": seconds,
        "timing": {"plan": 0.2, "counts": 0.7 * seconds, "metrics": 0.25 * seconds, "report": 0.05 * seconds},
        "peak_bytes": peak_bytes,
        "machine": {"cpu": "AMD EPYC 7763", "cores": 32, "cluster": "local, 4 workers"},
        "metrics": metrics,
        "counts": {"n_query": 3368, "n_valid": 3368, "n_gallery": 15913},
        "conventions": {
            "protocol": {"name": dataset},
            "distance": {"name": "cosine"},
            "rerank": {"name": "k_reciprocal", "k1": 20, "k2": 6} if job == "reranked" else None,
        },
        "inputs": {
            side: {"uri": f"/features/{model}/{side}.zarr", "content_digest": digest(f"{name}{side}{features}")}
            for side in ("query", "gallery")
        },
        "environment": {"reid_dist": "0.1.0", "numpy": "2.3.1", "host": f"node{night % 3}", "git_commit": digest("g")},
        "input_digest": digest(f"{name}{features}"),
        "job_digest": digest(job),
        "result_digest": digest(f"{name}{features}{shift}"),
        "folder": f"runs/{night + 1:05d}/{name}",
        "findings": findings if gated else (),
    }
    return Entry(model=model, dataset=dataset, job=job, **(fields | more))


def same_change(name: str, metrics: Mapping[str, Estimate]) -> Change:
    value = metrics[name].value
    return tested(
        Change(name=name, baseline=value, candidate=value, difference=0.0, low=-0.001, high=0.001, verdict=Outcome.SAME)
    )


def tested(change: Change) -> Change:
    """The change with what a comparison by identity gives it."""
    return dataclasses.replace(
        change, test=Decider.IDENTITIES, p_value=0.0004, level=0.998, n_units=750, n_lost=31, n_gained=9
    )


def run(night: int, entries: Sequence[Entry], *, exit_code: int | None = 0, **more: Any) -> Run:
    fields: dict[str, Any] = {
        "number": night + 1,
        "suite": "nightly",
        "suite_digest": digest("suite"),
        "started": stamp(night),
        "finished": stamp(night, 1834),
        "exit_code": exit_code,
        "host": f"node{night % 3}",
        "pid": 4711,
        "version": "0.1.0",
        "entries": tuple(entries),
    }
    return Run(**(fields | more))


def with_finding(found: Entry, new: Finding, **changes: Any) -> Entry:
    """The entry with another finding of one gate."""
    findings = {each.gate: each for each in (*found.findings, new)}
    return dataclasses.replace(found, findings=tuple(findings.values()), **changes)


def changed_metrics(found: Entry, difference: float, low: float, high: float, verdict: str) -> tuple[Change, ...]:
    moved: dict[str, Any] = {"difference": difference, "low": low, "high": high, "verdict": verdict}
    metrics = found.metrics.items()
    return tuple(
        tested(Change(name=name, baseline=METRICS[name], candidate=each.value, **moved)) for name, each in metrics
    )


def worse_entry(night: int, *, baseline: int, **more: Any) -> Entry:
    """A model that lost 1.83 points of mAP after its query features and its commit changed."""
    found = entry(night=night, shift=-0.0183, features="b", **more)
    first, *others = changed_metrics(found, -0.0183, -0.0241, -0.0120, Outcome.WORSE)
    lost = tuple(
        ChangedQuery(31 * place, 100 + place, None if place % 5 == 4 else place % 6, 0.9, 0.02) for place in range(10)
    )
    files = tuple(f"{place:04}_c{place % 6}.jpg" if place % 3 else "" for place in range(10))
    changes = (dataclasses.replace(first, lost=lost, files=files), *others)
    return with_finding(
        found,
        finding("accuracy", Outcome.WORSE, baseline=baseline, changes=changes),
        labels=found.labels | {"commit": "77d01be"},
        environment=found.environment | {"numpy": "2.4.0"},
    )


def slow_entry(night: int, **more: Any) -> Entry:
    found = entry(night=night, seconds=301.0, **more)
    assert found.seconds is not None
    changes = (cost("seconds", 123.0, found.seconds, 0.87, 1.15, Outcome.WORSE),)
    return with_finding(found, finding("speed", Outcome.WORSE, changes=changes))


def undecided_entry(night: int, *, baseline: int, **more: Any) -> Entry:
    """A model with too few valid queries for a verdict."""
    found = entry(night=night, **({"features": f"of night {night}"} | more))
    first = found.findings[0].changes[0]
    moved = dataclasses.replace(first, difference=-0.1485, low=-0.55, high=0.3, verdict=Outcome.UNDECIDED)
    return with_finding(found, finding("accuracy", Outcome.UNDECIDED, baseline=baseline, changes=(moved,)))


def falling_entry(night: int, *, since: int, **more: Any) -> Entry:
    """A model that lost a little every night, within the noise of two nights."""
    change = Change(
        name="mAP", baseline=0.852, candidate=0.811, difference=-0.041, low=-0.055, high=-0.028, verdict=Outcome.WORSE
    )
    change = dataclasses.replace(tested(change), test=Decider.NIGHTS)
    trend = finding("trend", Outcome.WORSE, baseline=since, changes=(change,))
    return with_finding(undecided_entry(night, baseline=night, **more), trend)


def alarm_entry(night: int, *, baseline: int, **more: Any) -> Entry:
    """Equal inputs and an equal job with another result."""
    found = entry(night=night, **more)
    moved = dataclasses.replace(found.findings[0].changes[0], candidate=METRICS["mAP"] - 1e-4, difference=-1e-4)
    digests = [digest("a result"), digest("something else")]
    facts = {"role": "last good", "effect": 0.005, "moved": {"run": baseline, "digests": digests, "differences": []}}
    accuracy = finding("accuracy", Outcome.SAME, facts=facts, alarm=ALARM, baseline=baseline, changes=(moved,))
    return with_finding(found, accuracy, result_digest=digests[1])


def better_entry(night: int, *, baseline: int, **more: Any) -> Entry:
    found = entry(night=night, shift=0.012, features="c", **more)
    changes = changed_metrics(found, 0.012, 0.006, 0.018, Outcome.BETTER)
    return with_finding(found, finding("accuracy", Outcome.BETTER, baseline=baseline, changes=changes))


def nights_full_of(text: str, *, folder: str = "") -> list[Run]:
    """Two nights with a text in every place that comes from outside."""
    found = worse_entry(1, baseline=1)
    findings = tuple(
        dataclasses.replace(
            each,
            code=Code.RECORDED,
            facts={"text": text},
            changes=tuple(dataclasses.replace(change, name=text) for change in each.changes),
        )
        for each in found.findings
    )
    named: dict[str, Any] = {key: {text: text} for key in ("labels", "machine", "environment", "inputs", "conventions")}
    tonight = dataclasses.replace(
        found,
        model=text,
        dataset=text,
        job=text,
        started=text,
        timing={text: 1.0},
        reused=(text,),
        metrics={text: Estimate(0.5, 0.4, 0.6), "mAP": Estimate(0.5)},
        input_digest=text,
        folder=folder or found.folder,
        findings=findings,
        **named,
    )
    before = dataclasses.replace(tonight, input_digest="", job_digest="", **{key: {} for key in named})
    undone = [dataclasses.replace(tonight, job=each, state=each, reason=text) for each in (State.FAILED, State.SKIPPED)]
    return [
        run(0, [before], started=text, planned=(text,)),
        run(1, [tonight, *undone], suite=text, host=text, version=text, suite_digest=text, finished=text, exit_code=3),
    ]


def undone_entry(
    state: str, reason: str, *, night: int, model: str = "resnet50", dataset: str = "market1501", job: str = "plain"
) -> Entry:
    return Entry(model=model, dataset=dataset, job=job, state=state, reason=reason, started=stamp(night))


def new_entry(night: int, **more: Any) -> Entry:
    """A job that has no earlier night."""
    found = tuple(finding(gate, Outcome.INCOMPARABLE, Code.NO_BASELINE) for gate in GATES)
    return dataclasses.replace(entry(night=night, **more), findings=found)


def uncompared_entry(night: int, *, baseline: int, n_gallery: int = 16240, **more: Any) -> Entry:
    """A job whose gallery has grown since its baseline: its mAP fell from 85.20 to 5.12%, and nothing was tested."""
    values = {
        name: Estimate(value, value - 0.011, value + 0.011) for name, value in (METRICS | {"mAP": 0.0512}).items()
    }
    found = entry(night=night, features=f"of {n_gallery} rows", metrics=values, **more)
    change = Change(name="mAP", baseline=METRICS["mAP"], candidate=0.0512)
    facts = {"differences": [["n_gallery", "15913", f"{n_gallery}"]]}
    code = Code.OTHER_CONDITIONS
    return with_finding(
        found, finding("accuracy", Outcome.INCOMPARABLE, code, facts=facts, baseline=baseline, changes=(change,))
    )


def eventful_nights(n_nights: int = 24) -> list[Run]:
    """Several jobs over nights; the last night has one of everything."""
    last = n_nights - 1
    runs = []
    for night in range(n_nights):
        # A model that is trained on: other features every fourth night, and values that wander.
        week = night // 4
        entries = [
            entry(night=night, features=f"a{week}", shift=0.004 * (week % 3 - 1)),
            entry(job="reranked", night=night, seconds=140.0),
            entry(dataset="msmt17", night=night),
            entry(model="vit_b", night=night),
            entry(model="vit_b", dataset="msmt17", night=night),
            entry(model="vit_b", job="reranked", night=night),
            entry(model="osnet", night=night),
            entry(model="osnet", dataset="msmt17", night=night),
        ]
        exit_code: int | None = 0
        if night == 5:
            reason = "store /features/resnet50/query.zarr: chunk 3 is damaged"
            entries[0], exit_code = undone_entry(State.FAILED, reason, night=night), 3
        if night == 9:
            entries, exit_code = entries[:3], None
        if night == last:
            reason = "store /features/vit_b/gallery.zarr: array features, chunk 17: checksum differs"
            of_vit = {"model": "vit_b"}
            entries = [
                worse_entry(night, baseline=last),
                slow_entry(night, job="reranked"),
                alarm_entry(night, baseline=last, dataset="msmt17"),
                better_entry(night, baseline=last, **of_vit),
                undone_entry(State.FAILED, reason, night=night, dataset="msmt17", **of_vit),
                undone_entry(State.SKIPPED, "the time budget was spent", night=night, job="reranked", **of_vit),
                entries[6],
                new_entry(night, model="swin_t"),
                uncompared_entry(night, baseline=last, model="osnet", dataset="msmt17"),
            ]
            exit_code = 3
        # A job that was left out of every night, and on the last one is no longer in the suite.
        planned = [each.name for each in entries] + ["resnet18/market1501/plain"] * (night != last)
        runs.append(run(night, [_as_of(night, each) for each in entries], exit_code=exit_code, planned=tuple(planned)))
    return runs


def _as_of(night: int, entry: Entry) -> Entry:
    """What all jobs have from a night on: another version from the 17th, another k1 from the 13th."""
    if entry.state != "done":
        return entry
    if night >= 12 and entry.job == "reranked":
        conventions = entry.conventions | {"rerank": {"name": "k_reciprocal", "k1": 25, "k2": 6}}
        entry = dataclasses.replace(entry, job_digest=digest("k1=25"), conventions=conventions)
    if night >= 16:
        entry = dataclasses.replace(entry, environment=entry.environment | {"reid_dist": "0.2.0"})
    return entry


def quiet_nights(n_nights: int, n_jobs: int) -> list[Run]:
    """Nights of many jobs in which nothing happens."""
    models = [f"model{job:02d}" for job in range(n_jobs)]
    return [run(night, [entry(model=model, night=night) for model in models]) for night in range(n_nights)]
