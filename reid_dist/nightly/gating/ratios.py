"""Gates of speed and memory: the ratio to the median of the last comparable runs, against their noise.

Noise of a quantity from night to night, estimated from few nights with outliers.

Times and memory are positive and vary in proportion, hence their logarithms.  Let ``x`` be those of ``n``
earlier runs, ``m`` their median and ``s`` their spread.  A new run leaves the noise where its logarithm is farther
from ``m`` than ::

    t(1 - false_alarm, v) * s * sqrt(1 + pi / (2 n))

``s`` is Qn, a quantile of the distances between pairs of runs.  Like the median it stays sensible until half of the
runs are odd, and it takes less than half as many runs as the median absolute deviation for the same certainty.  The
root adds the uncertainty of ``m`` (variance of a median: ``pi s**2 / 2 n``) to that of the new run.  Student's ``t``
models the uncertainty of ``s``, which is large when runs are few; ``v`` are its degrees of freedom, with the
variance of ``s`` in samples of ``n`` for what ``1 / 2 v`` is to a standard deviation.  For Qn that is about
``0.82 n - 3.5`` (0.82 is its efficiency for large ``n``, the rest was found by simulation), rounded down.

Source: Rousseeuw and Croux, JASA 1993 (Qn), with the factors for few values of Croux and Rousseeuw, COMPSTAT 1992.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.metrics.repeats import t_quantile
from reid_dist.nightly.causes import differing, job_differences
from reid_dist.nightly.gating.gate_settings import RatioGate
from reid_dist.nightly.history.history_values import Change, Code, Decider, Entry, Finding, Outcome
from reid_dist.reports.documents import plain

Float64 = NDArray[np.float64]

# Largest useful bound of noise.
_WIDEST: Final = 4.0
# Bound that keeps exp() finite.
_LARGEST_LOG: Final = 700.0
# Makes Qn the standard deviation of normal values: 1 / (sqrt(2) quantile(5 / 8)).
_CONSISTENT: Final = 2.21914
_OF_FEW: Final = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}


def gate_speed(entry: Entry, past: Sequence[Entry], gate: RatioGate) -> Finding:
    """Return the finding of speed of an entry against entries of the same name from earlier runs, oldest first.

    All were done.  Those that do not compare are passed over, and so are those before the newest that was worse and was
    accepted.
    """
    return _gated("speed", "seconds", entry, past, gate)


def gate_memory(entry: Entry, past: Sequence[Entry], gate: RatioGate) -> Finding:
    """Return the finding of memory of an entry; see `gate_speed`."""
    return _gated("memory", "peak_bytes", entry, past, gate)


def _gated(name: str, quantity: str, entry: Entry, past: Sequence[Entry], gate: RatioGate) -> Finding:
    value: float | None = getattr(entry, quantity)
    change = Change(name=quantity, baseline=None, candidate=value)
    # Imported histories may hold zeros, of which there is no ratio.
    if not value:
        return _finding(name, change, Code.UNKNOWN, {})
    known = [(each, earlier) for each in past if (earlier := getattr(each, quantity))]
    known = known[_first_of_new_normal(name, [each for each, _ in known]) :]
    comparable = [earlier for each, earlier in known if not _obstacles(each, entry)][-gate.window :]
    if len(comparable) < gate.minimum_runs:
        unlike = [found for each, _ in known if (found := _obstacles(each, entry))]
        waiting = {"n": len(comparable), "needed": gate.minimum_runs, "unit": "run", "n_others": len(unlike)}
        # The newest shows what changed last.
        return _finding(name, change, Code.WAITING, waiting | ({"newest": unlike[-1]} if unlike else {}))
    logs = np.log(np.array(comparable))
    median = math.exp(float(np.median(logs)))
    floor = _reach(logs, gate)
    limit = max(gate.smallest_ratio, floor)
    ratio = value / median
    change = replace(change, baseline=median, difference=ratio, test=Decider.RUNS, n_units=len(comparable))
    if len(logs) < gate.window and floor > max(_WIDEST, gate.smallest_ratio) and 1 / limit <= ratio <= limit:
        more = range(max(len(logs) + 1, gate.minimum_runs), gate.window)
        enough = next((n for n in more if _reach(logs, gate, n) <= _WIDEST), gate.window)
        noisy = {"n": len(logs), "needed": enough, "unit": "run", "factor": _WIDEST}
        return _finding(name, replace(change, verdict=Outcome.UNDECIDED), Code.NOISY, noisy)
    verdict = Outcome.WORSE if ratio > limit else Outcome.BETTER if ratio < 1 / limit else Outcome.SAME
    facts = {"bound": "effect" if limit == gate.smallest_ratio else "noise"}
    return _finding(name, replace(change, low=1 / limit, high=limit, verdict=verdict), Code.RATIO, facts)


def _finding(gate: str, change: Change, code: str, facts: Mapping[str, Any]) -> Finding:
    return Finding(gate=gate, verdict=change.verdict, code=code, facts=facts, changes=(change,))


def _first_of_new_normal(gate: str, past: Sequence[Entry]) -> int:
    """Return the index of the newest accepted entry that this gate called worse: a new level begins; 0 for none."""
    for at in range(len(past) - 1, -1, -1):
        if past[at].accepted and any(
            finding.gate == gate and finding.verdict == Outcome.WORSE for finding in past[at].findings
        ):
            return at
    return 0


def _obstacles(before: Entry, after: Entry) -> list[dict[str, Any]]:
    """Return why time and memory of two entries do not compare: what differs, and how; empty if they do."""
    found = []
    # As plain values: the history turns tuples into lists.
    if plain(before.machine) != plain(after.machine):
        found.append({"what": "machine", "differences": plain(differing(before.machine, after.machine))})
    if before.job_digest != after.job_digest:
        found.append({"what": "job", "differences": plain(job_differences(before, after))})
    if set(before.reused) != set(after.reused):
        found.append({"what": "reused", "stages": [sorted(each.reused) for each in (before, after)]})
    if _shapes(before) != _shapes(after):
        found.append({"what": "shape", "differences": plain(differing(_shapes(before), _shapes(after)))})
    return found


def _shapes(entry: Entry) -> dict[str, Any]:
    return {
        name: {part: plain(description.get(part)) for part in ("shape", "dtype")}
        for name, description in entry.inputs.items()
        if isinstance(description, Mapping)
    }


def _reach(logs: Float64, gate: RatioGate, n_runs: int | None = None) -> float:
    """Return the ratio that noise reaches after these runs, or after so many with this spread."""
    return math.exp(min(noise_floor(logs, gate.false_alarm, n_runs=n_runs), _LARGEST_LOG))


def noise_floor(logs: Float64, false_alarm: float, *, n_runs: int | None = None) -> float:
    """Return the distance from the median that a new logarithm exceeds with probability `false_alarm` on either side.

    `logs` are those of earlier runs, shape (n,), n at least 2; `false_alarm` is at most 0.5; `n_runs` replaces n for
    the uncertainty of the spread.
    """
    n = len(logs) if n_runs is None else n_runs
    wider = math.sqrt(1 + math.pi / (2 * n))
    return t_quantile(1 - false_alarm, degrees_of_freedom(n)) * spread(logs) * wider


def spread(values: Float64) -> float:
    """Qn of values of shape (n,), n at least 2: for normal values their standard deviation."""
    n = len(values)
    first, second = np.triu_indices(n, 1)
    distances = np.abs(values[first] - values[second])
    half = n // 2 + 1
    order = half * (half - 1) // 2
    factor = _OF_FEW.get(n) or (n / (n + 1.4) if n % 2 else n / (n + 3.8))
    return factor * _CONSISTENT * float(np.partition(distances, order - 1)[order - 1])


def degrees_of_freedom(n: int) -> int:
    """Degrees of freedom of the t distribution that models the uncertainty of Qn of `n` values."""
    return max(1, math.floor(0.82 * n - 3.5))
