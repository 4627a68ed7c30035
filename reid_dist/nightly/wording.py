"""Words of the nightly benchmarks: values, changes, findings, outcomes, causes and the headline of a night.

Gates and histories hold codes and numbers; what people read of them is worded here and nowhere else, and is never read
back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final, NamedTuple

from reid_dist.core.formatting import byte_size, counted, duration, first_few, shortened, upper_first
from reid_dist.errors import ExitCode
from reid_dist.nightly.causes import (
    Cause,
    CauseKind,
    brief,
    causes,
    changes_every_night,
    compared_with,
    done_before,
)
from reid_dist.nightly.common_items import Obstacle
from reid_dist.nightly.history.history_values import (
    BASELINE,
    CANDIDATE,
    Change,
    Code,
    Decider,
    Entry,
    Finding,
    Outcome,
    Role,
    Run,
    State,
    moment,
)
from reid_dist.nightly.outcomes import Streak, decided, outcome, outcome_counts, streak
from reid_dist.reports import words
from reid_dist.reports.comparison import Untested
from reid_dist.reports.verdicts import p_value_text
from reid_dist.reports.words import is_share

_ARROW: Final = "\N{RIGHTWARDS ARROW}"
_MOST_DIFFERENCES: Final = 6
_MOST_CAUSES: Final = 3
_LONGEST_REASON: Final = 240
_DIGITS: Final = 12
# Share of nights in which a change is found that "would have been detected", and its normal quantile.
_POWER: Final = 0.8
_POWER_QUANTILE: Final = NormalDist().inv_cdf(_POWER)

COSTS: Final = {"seconds": "time", "peak_bytes": "peak memory"}
"""Names of the quantities that are no metrics."""

KINDS: Final = {
    CauseKind.INPUTS: "content of the inputs",
    CauseKind.JOB: "definition of the job",
    CauseKind.LABELS: "labels in the suite",
    CauseKind.VERSION: "version or commit",
    CauseKind.MACHINE: "machine",
}
"""Description of a kind of cause."""

_FIELDS: Final = {"content_digest": "content", "labels_digest": "identities and cameras"}
_COMMON_OBSTACLES: Final = {
    Obstacle.NO_FEATURES: "the job has no values per query, or its ranking was precomputed",
    Obstacle.ROW_NUMBERS: "the job's ground truth refers to row numbers",
    Obstacle.OVERWRITTEN: "the feature sets of that run have moved or were deleted; write each night's features to a "
    "separate directory, or only append rows",
    Obstacle.NO_IDS: "the items have no unique ids or image paths",
    Obstacle.NOTHING_COMMON: "the two nights share no item with equal labels",
    Obstacle.FAILED: "the evaluation of the common items failed",
}
_OBSTACLES: Final = {"machine": "another machine", "job": "another job", "shape": "inputs with a different shape"}


class Sign(NamedTuple):
    """Presentation of an outcome or a verdict without colour: its name, which is also its style, a mark and words.

    `one` and `many` are phrases for one job and for several.
    """

    kind: str
    mark: str
    words: str
    one: str = ""
    many: str = ""

    def phrase(self, n_jobs: int) -> str:
        """Return the phrase for so many jobs."""
        return self.one if n_jobs == 1 else self.many


_SIGNS: Final = (
    Sign(Outcome.FAILED, "\N{BALLOT X}", "failed", "failed", "failed"),
    Sign(
        *(Outcome.UNPREPARED, "\N{BALLOT X}", "preparation failed"),
        *("has no features because its preparation failed", "have no features because their preparation failed"),
    ),
    Sign(
        *(Outcome.STALE, "\N{CLOCKWISE OPEN CIRCLE ARROW}", "features not new"),
        *("got no new features", "got no new features"),
    ),
    Sign(
        *(Outcome.MOVED, "!", "changed unexpectedly"),
        *("changed although inputs and job are identical", "changed although inputs and job are identical"),
    ),
    Sign(Outcome.WORSE, "\N{BLACK DOWN-POINTING TRIANGLE}", "worse", "is worse", "are worse"),
    Sign(
        *(Outcome.UNCOMPARED, "\N{CIRCLED DIVISION SLASH}", "not compared"),
        *("was not compared with its baseline", "were not compared with their baselines"),
    ),
    Sign(
        *(Outcome.SKIPPED, "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}", "skipped"),
        *("was skipped", "were skipped"),
    ),
    Sign(Outcome.INCOMPARABLE, "?", "no baseline yet", "has no baseline yet", "have no baseline yet"),
    Sign(Outcome.UNDECIDED, "\N{PLUS-MINUS SIGN}", "no change detected"),
    Sign(
        *(Outcome.ACCEPTED, "\N{CHECK MARK}", "accepted"),
        *("is worse, and was accepted", "are worse, and were accepted"),
    ),
    Sign(Outcome.BETTER, "\N{BLACK UP-POINTING TRIANGLE}", "better", "is better", "are better"),
    Sign(Outcome.SAME, "=", "same", "is the same as before", "are the same as before"),
)
SIGNS: Final[Mapping[str, Sign]] = {sign.kind: sign for sign in _SIGNS}
"""Sign of every outcome, the most urgent first."""

_URGENT: Final = tuple(Outcome)[: tuple(Outcome).index(Outcome.INCOMPARABLE)]


# -------------------------------------------------------------------------------------------- times, values and changes


def when(stamp: str) -> str:
    """Return a time of ISO 8601 as ``2026-03-09 02:00 UTC``; any other text unchanged."""
    found = moment(stamp)
    return stamp if found is None else f"{found:%Y-%m-%d %H:%M} UTC"


def tick_day(stamp: str) -> str:
    """Return the day of a time as ``Mar 9``; of any other text its first 10 characters."""
    found = moment(stamp)
    return stamp[:10] if found is None else f"{found:%b} {found.day}"


def took(started: str, finished: str | None) -> str:
    """Return the duration of a run; empty if unknown."""
    begin, end = moment(started), moment(finished or "")
    if begin is None or end is None:
        return ""
    seconds = (end - begin).total_seconds()
    # Times of runs have whole seconds.
    return "" if seconds < 0 else duration(seconds) if seconds else "less than 1 s"


def value_text(name: str, value: float | None) -> str:
    """Return a metric, a time or a size with its unit."""
    if value is None:
        return "undefined"
    if name == "seconds":
        return duration(value)
    return byte_size(value) if name == "peak_bytes" else words.metric_value(name, value)


def difference_text(change: Change) -> str:
    """Return a change in points, or as a ratio of times or sizes; empty if unknown."""
    if change.difference is None:
        return ""
    if change.name in COSTS:
        return f"\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}{change.difference:.2f}"
    scale, digits, unit = (100, ".2f", " points") if is_share(change.name) else (1, ".4g", "")
    return f"{scale * change.difference:+{digits}}{unit}".replace("-", "\N{MINUS SIGN}")


def interval_text(name: str, low: float, high: float) -> str:
    """Return the interval of a difference of a metric."""
    scale, digits = (100, ".2f") if is_share(name) else (1, ".4g")
    return f"[{scale * low:+{digits}}, {scale * high:+{digits}}]".replace("-", "\N{MINUS SIGN}")


def first_metric(entry: Entry, earlier: Sequence[Run]) -> tuple[str, str, str]:
    """Return name, value and change of the first gated metric, or else of the first one; of a slow job also its time.

    A job that was not done has no value, and the metric of earlier nights, oldest first.
    """
    # The change of a fitted line is none of tonight's value.
    changes = {
        change.name: change for finding in entry.findings if finding.gate != "trend" for change in finding.changes
    }
    name = next((each for each in entry.metrics if each in changes), next(iter(entry.metrics), ""))
    if not name:
        past = (found for run in reversed(earlier) if (found := run.entry(entry.name)) is not None)
        return next((each for found in past for each in found.metrics), ""), "-", ""
    texts = [difference_text(changes[name]) if name in changes else ""]
    accuracy = entry.finding("accuracy")
    if texts[0] and accuracy is not None and "common" in accuracy.facts:
        texts[0] += " on common items"
    if outcome(entry) == Outcome.UNCOMPARED and name in changes and not texts[0]:
        texts = [f"before {value_text(name, changes[name].baseline)}"]
    costs = [(text, changes[each]) for each, text in COSTS.items() if each in changes]
    texts += [f"{text} {difference_text(change)}" for text, change in costs if change.verdict == Outcome.WORSE]
    return name, value_text(name, entry.value(name)), ", ".join(filter(None, texts))


def change_text(change: Change) -> str:
    """Return a change as ``mAP 85.20% → 83.37% (-1.83 points)``, with a true minus sign."""
    text = f"{COSTS.get(change.name, change.name)} {value_text(change.name, change.baseline)} {_ARROW} "
    text += value_text(change.name, change.candidate)
    difference = difference_text(change)
    if difference and change.name not in COSTS and change.low is not None and change.high is not None:
        difference += f" {interval_text(change.name, change.low, change.high)}"
    return f"{text} ({difference})" if difference else text


def points(share: float) -> str:
    """Return a share in points of a percentage."""
    return f"{100 * share:.2f}"


def decider_text(change: Change) -> str:
    """Return the test that decides on a change, with its p-value; empty for none."""
    names = {
        Decider.IDENTITIES: f"identities ({change.n_units})",
        Decider.NIGHTS: "order of nights",
        Decider.SPLITS: f"splits ({change.n_units})",
        Decider.RUNS: f"runs ({change.n_units})",
    }
    name = names[Decider(change.test)] if change.test else ""
    return name if change.p_value is None else f"{name}, p {p_value_text(change.p_value)}"


def detectable(change: Change, effect: float) -> float | None:
    """Return the change, as a share, that a test would have found in four of five nights; None if unknown."""
    if change.low is None or change.high is None or change.level is None:
        return None
    quantile = NormalDist().inv_cdf((1 + change.level) / 2)
    return max(effect, (change.high - change.low) / 2 * (1 + _POWER_QUANTILE / quantile))


def jobs(count: int) -> str:
    """Return ``1 job`` or ``12 jobs``."""
    return counted(count, "job")


def exit_meaning(code: int) -> str:
    """Return the meaning of an exit code."""
    return next(each.meaning for each in ExitCode if each == code)


BOARD_TEST: Final = (
    "does not differ significantly from the best value of its column (the larger p-value of paired bootstrap and "
    "sign-flip test by identity, with Holm's correction for all pairs of models, at 5%)"
)
"""What a dagger on the leaderboard means."""


def untested_models(models: Sequence[str]) -> str:
    """Return which models of a leaderboard are not tested, and why."""
    return f"not tested, because the history has no per-query values for them: {first_few(list(models), 10)}"


def board_sizes(entry: Entry) -> str:
    """Return the numbers of queries and gallery rows of an entry."""
    sizes = ((entry.counts.get(f"n_{side}"), name) for side, name in (("query", "query"), ("gallery", "gallery row")))
    return ", ".join(counted(int(size), name) for size, name in sizes if size is not None)


def lasting_text(found: Streak) -> str:
    """Return how long a trouble lasts."""
    return f"for {found.n_nights:,} nights in a row, since run {found.run}"


def removed_text(run: int) -> str:
    """Return that a job left its suite after a run."""
    return f"no longer in the suite (last in run {run})"


def cause_text(cause: Cause) -> str:
    """Return a difference of two nights as ``content of query 3f2a9c10 → 77d01be4``."""
    side, _, field = cause.field.rpartition(".")
    if not cause.field:
        name = f"digest of the {cause.kind}"
    elif side and field in _FIELDS:
        name = f"{_FIELDS[field]} of {side}"
    else:
        name = "commit" if cause.field == "git_commit" else cause.field
    return f"{name} {cause.before} {_ARROW} {cause.after}"


# ------------------------------------------------------------------------------------------------------------- findings


def sign_of_finding(finding: Finding) -> Sign:
    """Return the sign of a finding."""
    sign = SIGNS[Outcome.MOVED if finding.alarm else finding.verdict]
    return sign if finding.alarm else sign._replace(words=brief_verdict(finding))


def brief_verdict(finding: Finding, n_gates: int = 1) -> str:
    """Return a verdict in few words, as the predicate of so many gates; of one that waits, how many nights it needs."""
    if finding.code in (Code.WAITING, Code.NOISY):
        missing = max(1, int(finding.facts["needed"]) - int(finding.facts["n"]))
        return f"{'needs' if n_gates == 1 else 'need'} {counted(missing, 'more night')}"
    if finding.verdict == Outcome.INCOMPARABLE:
        return "no baseline yet" if finding.code == Code.NO_BASELINE else "not compared"
    return SIGNS[finding.verdict].words


def finding_text(finding: Finding) -> str:
    """Return why a gate has its verdict: its alarm, the values where these were not compared, and the figures."""
    moves = [
        change_text(change)
        for change in (finding.changes if finding.is_uncompared else ())
        if change.verdict == Outcome.INCOMPARABLE and None not in (change.baseline, change.candidate)
    ]
    # The words of an older version begin with the alarm.
    alarm = _moved(finding.facts["moved"]) if "moved" in finding.facts else ""
    common, reason = common_text(finding), _REASONS[Code(finding.code)](finding)
    reason = f"on {common}: {reason}" if common else reason
    return "; ".join(filter(None, [alarm, ", ".join(moves), reason, _not_common(finding.facts)]))


def common_text(finding: Finding) -> str:
    """Return the items that tonight was compared on; empty where these are all."""
    facts = finding.facts.get("common")
    if facts is None:
        return ""
    sides = (("query", "queries"), ("gallery", "gallery rows"))
    counts = [f"{facts[f'n_{side}']:,} of {facts[f'of_{side}']:,} {name}" for side, name in sides]
    which = "the first rows, which" if facts["by"] == "prefix" else "the items that"
    return f"{which} run {finding.baseline} has as well ({', '.join(counts)})"


def _not_common(facts: Mapping[str, Any]) -> str:
    """Return why the items of both nights were not compared; empty if that was not tried."""
    if "obstacle" not in facts:
        return ""
    why = f" ({facts['why']})" if "why" in facts else ""
    return f"the common items were not compared: {_COMMON_OBSTACLES[Obstacle(facts['obstacle'])]}{why}"


def differences_text(differences: Sequence[Sequence[str]]) -> str:
    """Return differences as ``k1 20, then 25``: the first six and the number of the others."""
    texts = [f"{name} {brief(near, _DIGITS)}, then {brief(far, _DIGITS)}" for name, near, far in differences]
    return first_few(texts, _MOST_DIFFERENCES, "; ")


def _moved(facts: Mapping[str, Any]) -> str:
    near, far = (brief(digest, _DIGITS) for digest in facts["digests"])
    places = differences_text(facts["differences"])
    where = f"what differs is {places}" if places else "versions and machine are also the same"
    return f"identical inputs and an identical job gave digest {near} in run {facts['run']} and {far} now; {where}"


def _changed(what: str) -> Callable[[Finding], str]:
    def text(finding: Finding) -> str:
        return f"{what} since run {finding.baseline}: {differences_text(finding.facts['differences']) or 'its digest'}"

    return text


def _recorded(finding: Finding) -> str:
    return str(finding.facts.get("text", ""))


def _unprepared(what: Callable[[Mapping[str, Any]], str]) -> Callable[[Finding], str]:
    def text(finding: Finding) -> str:
        facts = finding.facts
        last = next((line.strip() for line in reversed(facts.get("tail", ())) if line.strip()), "")
        ending = f", and ends with: {shortened(last, _LONGEST_REASON)}" if last else ""
        return f"{facts['command']} {what(facts)}; its output is in {facts['output']}{ending}"

    return text


def _exit_text(facts: Mapping[str, Any]) -> str:
    code = int(facts["exit_code"])
    return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"


def _waiting(finding: Finding) -> str:
    facts = finding.facts
    results = "results that differ" if facts["unit"] == "result" else "comparable runs"
    text = f"{facts['n']} of {facts['needed']} {results}"
    if not facts.get("newest"):
        return text
    n_others = facts["n_others"]
    why = " and ".join(map(_obstacle, facts["newest"]))
    verb = "is" if n_others == 1 else "are"
    return f"{text}; {counted(n_others, 'other run')} {verb} not comparable, the newest because of {why}"


def _obstacle(facts: Mapping[str, Any]) -> str:
    if facts["what"] == "reused":
        near, far = (", ".join(stages) or "none" for stages in facts["stages"])
        return f"other stages reused from earlier jobs ({near}, then {far})"
    return f"{_OBSTACLES[facts['what']]} ({differences_text(facts['differences']) or 'its digest'})"


def _noisy(finding: Finding) -> str:
    (change,) = finding.changes
    value, facts = value_text(change.name, change.candidate), finding.facts
    return (
        f"{facts['n']} of {facts['needed']} runs: {value} is "
        f"{change.difference:.2f} times their median, and they vary so much that noise alone could explain a factor of "
        f"{facts['factor']:g}"
    )


def _ratio(finding: Finding) -> str:
    (change,) = finding.changes
    value, median = (value_text(change.name, each) for each in (change.candidate, change.baseline))
    beyond = "the smallest change that matters" if finding.facts["bound"] == "effect" else "the noise of these runs"
    outside = "outside" if finding.verdict in (Outcome.WORSE, Outcome.BETTER) else "within"
    of = f"{change.difference:.2f} times the median {median} of {counted(change.n_units or 0, 'comparable run')}"
    return f"{value}, {of}; {outside} the range {change.low:.2f} to {change.high:.2f} ({beyond})"


def _tested(finding: Finding) -> str:
    facts = finding.facts
    role = "" if facts["role"] == Role.LAST_GOOD else f", the {facts['role']} one"
    text = f"against run {finding.baseline}{role}: "
    text += "; ".join(_metric_text(change, finding) for change in _decisive(finding))
    if "also" in facts:
        text += f"; also worse than run {facts['also']}"
    if facts.get("last") and facts["last"][1] is not None:
        verdict, run = facts["last"]
        text += f"; {SIGNS[verdict].words} against run {run}, the latest run"
    return text


def _decisive(finding: Finding) -> list[Change]:
    return [change for change in finding.changes if change.verdict == finding.verdict]


def _metric_text(change: Change, finding: Finding) -> str:
    name, effect = change.name, float(finding.facts["effect"])
    if change.missing:
        runs = {BASELINE: f"run {finding.baseline}", CANDIDATE: "this run"}
        return f"{name} is missing from {' and '.join(runs[side] for side in change.missing)}"
    if change.difference is None or change.low is None or change.high is None or change.level is None:
        no_splits = "the two runs share fewer than two splits"
        why = no_splits if change.untested is None else Untested(change.untested).words
        return f"{name} cannot be tested: {why}"
    difference = change.difference
    moved = (
        f"{'fell' if difference < 0 else 'rose'} by {points(abs(difference))} points to" if difference else "stayed at"
    )
    unit = "splits" if change.test == Decider.SPLITS else "identities"
    facts = [
        f"{name} {moved} {value_text(name, change.candidate)} ({100 * change.level:.6g}% interval of the difference "
        f"{interval_text(name, change.low, change.high)} points",
        f"{change.n_units} {unit}",
    ]
    if change.n_lost is not None:
        facts.append(f"{change.n_lost} queries lost and {change.n_gained} gained")
    text = ", ".join(facts) + ")"
    if change.verdict == Outcome.SAME:
        return f"{text}, within the {points(effect)} points that matter"
    if "too_few" in finding.facts:
        return f"{text}; {change.n_units} identities are too few to tell a loss from chance at this level"
    return f"{text}; {_detectable_text([(change, effect)])}" if change.verdict == Outcome.UNDECIDED else text


def _detectable_text(found: Sequence[tuple[Change, float]]) -> str:
    """Return the changes that would have been detected, of one or several jobs; empty if unknown."""
    sizes = [size for change, effect in found if (size := detectable(change, effect)) is not None]
    if not sizes:
        return ""
    low, high = points(min(sizes)), points(max(sizes))
    least = low if low == high else f"{low} to {high}"
    return f"a change of {least} points would have been detected in four of five nights"


def _line(finding: Finding) -> str:
    facts, parts = finding.facts, []
    for change in _decisive(finding):
        if change.difference is None or change.low is None or change.high is None or change.level is None:
            parts.append(f"{change.name} cannot be tested: fewer than two identities")
            continue
        moved = "falls" if change.difference < 0 else "rises"
        by = "of the order of nights" if change.test == Decider.NIGHTS else "by identity"
        p_value = "" if change.p_value is None else f", p {p_value_text(change.p_value)}"
        interval = interval_text(change.name, change.low, change.high)
        parts.append(
            f"{change.name} {moved} by about {points(abs(change.difference))} points along the fitted line "
            f"({100 * change.level:.6g}% interval over identities {interval}; "
            f"decided by the test {by}{p_value})"
        )
    if "as_in" in facts or "repeats" in facts:
        rising = [change for change in finding.changes if change.verdict == Outcome.BETTER]
        parts = [f"{change.name} by about {points(change.difference or 0.0)} points" for change in rising]
        why = f"as in run {facts['as_in']}" if "as_in" in facts else f"but the result is that of run {facts['repeats']}"
        return f"rising, {why}: {', '.join(parts)} along the fitted line since run {finding.baseline}"
    return f"{facts['n_results']} different results since run {finding.baseline}: {'; '.join(parts)}"


_REASONS: Final[Mapping[Code, Callable[[Finding], str]]] = {
    Code.RECORDED: _recorded,
    Code.NO_BASELINE: lambda _: "no earlier good run",
    Code.OTHER_JOB: _changed("the job changed"),
    Code.OTHER_CONDITIONS: _changed("the conditions changed"),
    Code.OTHER_SIZES: lambda finding: f"labels or numbers of rows changed since run {finding.baseline}",
    Code.PRUNED: lambda finding: f"the report of run {finding.baseline}, the {finding.facts['role']} one, was pruned",
    Code.DAMAGED: _recorded,
    Code.REFUSED: _recorded,
    Code.NO_VALUES: lambda _: "no gated metric has values per query",
    Code.NO_LABELS: lambda _: "tonight's labels are not recorded",
    Code.NO_REPORTS: lambda _: "no earlier night has a report of the same queries",
    Code.UNKNOWN: lambda finding: f"its {COSTS[finding.changes[0].name]} is not known",
    Code.EXITED: _unprepared(_exit_text),
    Code.OVERTIME: _unprepared(lambda facts: f"did not end within {duration(facts['seconds'])}"),
    Code.NOT_STARTED: _unprepared(lambda facts: f"could not be started: {facts['text']}"),
    Code.STALE: lambda finding: f"new features were expected, but all inputs are those of run {finding.baseline}",
    Code.WAITING: _waiting,
    Code.NOISY: _noisy,
    Code.EQUAL: lambda finding: f"the same result as in run {finding.baseline}, to the last bit",
    Code.EQUAL_NIGHTS: lambda finding: f"the same result in all {finding.facts['n_nights']} nights, to the last bit",
    Code.TESTED: _tested,
    Code.LINE: _line,
    Code.RATIO: _ratio,
}


def reasons(entry: Entry) -> list[tuple[str, str]]:
    """Return pairs of gates, in words, and their reasons, of what the outcome of an entry rests on.

    Entries that were not done have no gates.  An acceptance comes last.
    """
    if entry.state != State.DONE:
        return [("", entry.reason or "no reason was recorded")]
    # Without the gate of accuracy, several gates may have one reason.
    gates: dict[str, list[str]] = {}
    for finding in decided(entry)[1]:
        gates.setdefault(finding_text(finding), []).append(finding.gate)
    found = [(upper_first(", ".join(names)), reason) for reason, names in gates.items()]
    accepted = [("Accepted", entry.accepted)] if entry.accepted else []
    return [*(found or [("", "no gate is switched on")]), *accepted]


# ------------------------------------------------------------------------------------------------------------- headline


@dataclass(frozen=True, slots=True)
class Headline:
    """Headline of a night: the most urgent outcome of all jobs, and the number of jobs by outcome as `title`.

    `clauses` are pairs of a job and its change, with significance and possible causes; `quiet` stands for them where
    there is none.
    """

    kind: str
    title: str
    clauses: tuple[tuple[str, str], ...]
    quiet: str = ""

    @property
    def sentence(self) -> str:
        """The clauses as text."""
        return " ".join(f"{name} {clause}" for name, clause in self.clauses) or self.quiet


def headline(run: Run, earlier: Sequence[Run] = ()) -> Headline:
    """Return the headline of a run; the earlier ones, oldest first, have the baselines of its entries."""
    counts = outcome_counts(run)
    order = (*_URGENT, Outcome.BETTER, Outcome.SAME, Outcome.UNDECIDED, Outcome.INCOMPARABLE)
    kind = next((name for name in order if counts[name]), Outcome.SAME)
    title = upper_first(_title(run, counts, is_first=not any(each.entries for each in earlier)))
    clauses = tuple(_clauses(run, earlier))
    return Headline(kind, title, clauses, "" if clauses else _quiet(run, earlier))


def leading_change(entry: Entry) -> tuple[Finding, Change] | None:
    """Return the change that the outcome rests on first of all, and its finding; None for none."""
    changes = [(finding, change) for finding in decided(entry)[1] for change in finding.changes]
    decisive = [each for each in changes if each[0].verdict == each[1].verdict in (Outcome.WORSE, Outcome.BETTER)]
    # An alarm has changes that no gate calls worse.
    moved = [each for each in changes if each[1].difference and each[1].baseline != each[1].candidate]
    return next(iter(decisive or (moved if entry.alarm else [])), None)


def _title(run: Run, counts: Mapping[Outcome, int], *, is_first: bool) -> str:
    n_jobs = len(run.entries)
    # Urgent outcomes, or else changes; the tally has all outcomes.
    shown = [name for name in _URGENT if counts[name]]
    shown = shown or [name for name in (Outcome.BETTER, Outcome.ACCEPTED, Outcome.INCOMPARABLE) if counts[name]]
    if shown == [Outcome.INCOMPARABLE] and counts[Outcome.INCOMPARABLE] == n_jobs and is_first:
        return "first night: no baseline yet"
    if not shown and counts[Outcome.UNDECIDED]:
        return "no change detected"
    shown = shown or [Outcome.SAME]
    if counts[shown[0]] == n_jobs:
        everyone = {1: "the only job", 2: "both jobs"}.get(n_jobs, f"all {jobs(n_jobs)}")
        return f"{everyone} {SIGNS[shown[0]].phrase(n_jobs)}"
    if len(shown) == 1:
        return f"{counts[shown[0]]:,} of {jobs(n_jobs)} {SIGNS[shown[0]].phrase(counts[shown[0]])}"
    parts = [f"{counts[name]:,} {SIGNS[name].phrase(counts[name])}" for name in shown]
    return f"of {jobs(n_jobs)}, {', '.join(parts[:-1])} and {parts[-1]}"


def _quiet(run: Run, earlier: Sequence[Run]) -> str:
    """Return what is to say of a night without a change: what could have been detected, and what changed."""
    quiet = [entry for entry in run.entries if outcome(entry) == Outcome.UNDECIDED]
    unchanged = "No gate found a change." if {*map(outcome, run.entries)} <= {Outcome.SAME, Outcome.UNDECIDED} else ""
    if not quiet:
        return unchanged
    found = []
    for entry in quiet:
        finding = entry.finding("accuracy")
        if finding is not None and finding.changes and finding.code == Code.TESTED:
            found.append((finding.changes[0], float(finding.facts["effect"])))
    features = ""
    if all(changes_every_night(entry, earlier) for entry in quiet):
        features = "Features changed (as every night)"
    elif len(quiet) == 1 and (before := done_before(quiet[0], earlier)):
        features = "Features changed" if before[-1][1].input_digest != quiet[0].input_digest else ""
    detected = _detectable_text(found)
    detected = f"For {found[0][0].name}, {detected}" if detected else ""
    return " ".join(f"{part}." for part in (features, detected) if part) or unchanged


def causes_texts(
    before: Entry, entry: Entry, earlier: Sequence[Run], *, short: bool = False
) -> list[tuple[CauseKind, str]]:
    """Return pairs of a kind and a difference since an earlier night; `short` sums up those of the inputs.

    Inputs that change every night are always summed up.
    """
    found = list(causes(before, entry))
    every = changes_every_night(entry, earlier)
    texts = [(each.kind, cause_text(each)) for each in found]
    if not (short or every) or not any(each.kind == CauseKind.INPUTS for each in found):
        return texts
    features = "features (as every night)" if every else "features"
    return [(CauseKind.INPUTS, features), *(each for each in texts if each[0] != CauseKind.INPUTS)]


def _clauses(run: Run, earlier: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield one clause per outcome that is a change: its first entry in full, the others by their number."""
    for name in (*_URGENT, Outcome.BETTER):
        found = [entry for entry in run.entries if outcome(entry) == name]
        if found:
            n_others = len(found) - 1
            others = f" {counted(n_others, 'other job')} {SIGNS[name].phrase(n_others)}." if n_others else ""
            lasting = streak(found[0], reversed(earlier))
            text = _clause(found[0], name, earlier)
            yield found[0].name, text + (f"; this has been so {lasting_text(lasting)}." if lasting else ".") + others


def _clause(entry: Entry, kind: str, earlier: Sequence[Run]) -> str:
    if kind in (Outcome.FAILED, Outcome.UNPREPARED, Outcome.SKIPPED):
        reason = shortened(entry.reason, _LONGEST_REASON).rstrip(".")
        phrase = SIGNS[kind].one
        return f"{phrase}: {reason}" if reason else phrase
    if kind in (Outcome.STALE, Outcome.UNCOMPARED):
        (_, reason), *_ = reasons(entry)
        return f"{SIGNS[kind].one}: {shortened(reason, _LONGEST_REASON)}"
    finding, change = leading_change(entry) or (None, None)
    if finding is not None and finding.gate == "trend" and change is not None and kind != Outcome.MOVED:
        return _trend_clause(entry, finding, change, earlier)
    if kind == Outcome.MOVED:
        text = "gave a different result for identical inputs and an identical job"
        nothing = "no tracked version or machine has changed either"
    else:
        text = f"is {kind}"
        if change is not None:
            is_cost = change.name in COSTS
            text = f"is {kind}, by more than the noise of earlier nights" if is_cost else f"is significantly {kind}"
        nothing = "no tracked input, version or machine has changed"
    common = " on common items" if finding is not None and "common" in finding.facts else ""
    text += f"{common}: {change_text(change)}" if change is not None else ""
    against = compared_with(entry, earlier)
    if against is None:
        return text
    run, before = against
    found = [cause for _, cause in causes_texts(before, entry, earlier, short=True)]
    if not found:
        return f"{text}; {nothing} since run {run.number}"
    return f"{text}; changed since run {run.number}: {first_few(found, _MOST_CAUSES)}"


def _trend_clause(entry: Entry, finding: Finding, change: Change, earlier: Sequence[Run]) -> str:
    """Describe a change of the fitted line apart from that of one night, which its ends are no values of.

    What changed since the last run is no cause of it.
    """
    before = done_before(entry, earlier)
    n_nights = 1 + sum(run.number >= (finding.baseline or 0) for run, _ in before)
    moves = "rising" if (change.difference or 0.0) > 0 else "falling"
    size = difference_text(change).lstrip("+\N{MINUS SIGN}")
    text = f"is {moves} over {counted(n_nights, 'night')}: {change.name} by about {size} "
    text += f"along the fitted line; tonight {value_text(change.name, entry.value(change.name))}"
    if not before:
        return text
    run, last = before[-1]
    value, earlier_value = entry.value(change.name), last.value(change.name)
    if value is None or earlier_value is None:
        return text
    since_last = difference_text(replace(change, difference=value - earlier_value))
    return f"{text} ({since_last} against run {run.number})"
