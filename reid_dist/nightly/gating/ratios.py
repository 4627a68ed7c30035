"""Gates of speed and memory: the ratio to the median of the last comparable runs, against their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import byte_size, duration
from reid_dist.nightly.gating.differences import differing, job_differences, listed
from reid_dist.nightly.gating.noise import noise_floor
from reid_dist.nightly.gating.settings import RatioGate
from reid_dist.nightly.history.values import BETTER, DONE, SAME, UNDECIDED, WORSE, Change, Entry, Finding
from reid_dist.reports.documents import plain

Float64 = NDArray[np.float64]

# Largest useful bound of noise.
_WIDEST: Final = 4.0
# Bound that keeps exp() finite.
_LARGEST_LOG: Final = 700.0


def gate_speed(entry: Entry, past: Sequence[Entry], gate: RatioGate) -> Finding:
    """Return the finding of speed of an entry against entries of the same name from earlier runs, oldest first.

    Those that were not done or do not compare are passed over, and so are those before the newest that was worse and
    was accepted.
    """
    return _gated(_SECONDS, entry, past, gate)


def gate_memory(entry: Entry, past: Sequence[Entry], gate: RatioGate) -> Finding:
    """Return the finding of memory of an entry; see `gate_speed`."""
    return _gated(_PEAK_BYTES, entry, past, gate)


@dataclass(frozen=True, slots=True)
class _Quantity:
    """Quantity of a gate: its name in an `Entry` and in a `Change`, its values as text, and its name as text."""

    gate: str
    name: str
    words: Callable[[float], str]
    title: str


_SECONDS: Final = _Quantity("speed", "seconds", duration, "time")
_PEAK_BYTES: Final = _Quantity("memory", "peak_bytes", byte_size, "peak memory")


def _gated(quantity: _Quantity, entry: Entry, past: Sequence[Entry], gate: RatioGate) -> Finding:
    value = _known(quantity, entry)
    change = Change(name=quantity.name, baseline=None, candidate=value)
    if value is None:
        return _finding(quantity, change, f"its {quantity.title} is not known")
    known = [(each, earlier) for each in past if (earlier := _known(quantity, each)) is not None]
    known = known[_first_of_new_normal(quantity, [each for each, _ in known]) :]
    comparable = [earlier for each, earlier in known if not _obstacles(each, entry)][-gate.window :]
    if len(comparable) < gate.minimum_runs:
        unlike = [found for each, _ in known if (found := _obstacles(each, entry))]
        return _finding(quantity, change, _too_few(len(comparable), unlike, gate))
    logs = np.log(np.array(comparable))
    median = math.exp(float(np.median(logs)))
    floor = _reach(logs, gate)
    limit = max(gate.smallest_ratio, floor)
    ratio = value / median
    change = replace(change, baseline=median, difference=ratio)
    if len(logs) < gate.window and floor > max(_WIDEST, gate.smallest_ratio) and 1 / limit <= ratio <= limit:
        return _finding(quantity, replace(change, verdict=UNDECIDED), _too_wide(quantity, value, ratio, logs, gate))
    verdict = WORSE if ratio > limit else BETTER if ratio < 1 / limit else SAME
    beyond = "the smallest that matters" if limit == gate.smallest_ratio else "the noise of these runs"
    outside = "outside" if verdict in (WORSE, BETTER) else "within"
    reason = (
        f"{quantity.words(value)}, {ratio:.2f} times the median {quantity.words(median)} of {len(comparable)} "
        f"comparable runs; {outside} {1 / limit:.2f} to {limit:.2f}, {beyond}"
    )
    return _finding(quantity, replace(change, low=1 / limit, high=limit, verdict=verdict), reason)


def _finding(quantity: _Quantity, change: Change, reason: str) -> Finding:
    return Finding(gate=quantity.gate, verdict=change.verdict, reason=reason, changes=(change,))


def _known(quantity: _Quantity, entry: Entry) -> float | None:
    """Return the positive finite value of an entry that was done; None otherwise."""
    value = getattr(entry, quantity.name) if entry.state == DONE else None
    return float(value) if value is not None and 0 < value < math.inf else None


def _first_of_new_normal(quantity: _Quantity, past: Sequence[Entry]) -> int:
    """Return the index of the newest accepted entry that this gate called worse: a new level begins; 0 for none."""
    for at in range(len(past) - 1, -1, -1):
        if past[at].accepted and any(
            finding.gate == quantity.gate and finding.verdict == WORSE for finding in past[at].findings
        ):
            return at
    return 0


def _obstacles(before: Entry, after: Entry) -> list[str]:
    """Return why time and memory of two entries do not compare; empty if they do."""
    found = []
    # As plain values: the history turns tuples into lists.
    if plain(before.machine) != plain(after.machine):
        found.append(f"another machine ({listed(differing(before.machine, after.machine))})")
    if before.job_digest != after.job_digest:
        found.append(f"another job ({listed(job_differences(before, after)) or 'its digest'})")
    if set(before.reused) != set(after.reused):
        stages = [", ".join(sorted(each.reused)) or "none" for each in (before, after)]
        found.append(f"other stages left by earlier jobs ({stages[0]}, then {stages[1]})")
    if _shapes(before) != _shapes(after):
        found.append(f"inputs of another shape ({listed(differing(_shapes(before), _shapes(after)))})")
    return found


def _shapes(entry: Entry) -> dict[str, Any]:
    """Return shape and type of every input."""
    return {
        name: {part: plain(description.get(part)) for part in ("shape", "dtype")}
        for name, description in entry.inputs.items()
        if isinstance(description, Mapping)
    }


def _too_wide(quantity: _Quantity, value: float, ratio: float, logs: Float64, gate: RatioGate) -> str:
    """Return the reason where the noise of few, differing runs allows any value that occurs."""
    more = range(max(len(logs) + 1, gate.minimum_runs), gate.window)
    enough = next((n for n in more if _reach(logs, gate, n) <= _WIDEST), gate.window)
    return (
        f"no verdict yet ({len(logs)} of {enough} runs): {quantity.words(value)} is {ratio:.2f} times their median, "
        f"and they vary so much that noise alone could explain a factor of {_WIDEST:g}"
    )


def _reach(logs: Float64, gate: RatioGate, n_runs: int | None = None) -> float:
    """Return the ratio that noise reaches after these runs, or after so many with this spread."""
    return math.exp(min(noise_floor(logs, gate.false_alarm, n_runs=n_runs), _LARGEST_LOG))


def _too_few(n_comparable: int, unlike: list[list[str]], gate: RatioGate) -> str:
    # `brief_verdict` extracts the first words.
    runs = f"no verdict yet ({n_comparable} of {gate.minimum_runs} runs)"
    if not unlike:
        return runs
    # The newest shows what changed last.
    others = f"{len(unlike)} other{' does' if len(unlike) == 1 else 's do'} not compare"
    return f"{runs}; {others}, the newest for {' and '.join(unlike[-1])}"
