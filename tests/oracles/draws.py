"""Random galleries by plain loops: SplitMix64 as it is published, one output at a time."""

from __future__ import annotations

WORD = 2**64


class SplitMix64:
    """The generator as it is published: one state, one output at a time, Python's unbounded whole numbers."""

    def __init__(self, state: int) -> None:
        self.state = state

    def __next__(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % WORD
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        return z ^ (z >> 31)


def nth(state, n):
    stream = SplitMix64(state)
    for _ in range(n):
        next(stream)
    return next(stream)


def drawn_by_loops(pids, camids, draw, split, counted=None):
    """Rows that a split keeps, one row after the other; `counted` says whether rows take part, beside their pid."""
    start = nth(draw.seed, split)
    groups = {}
    for row, pid in enumerate(pids):
        if pid != -1 and (counted is None or counted[row]):
            key = (pid, camids[row]) if draw.per_camera else pid
            groups.setdefault(key, []).append((nth(start, row), row))
    return sorted(row for members in groups.values() for _, row in sorted(members)[: draw.per_identity])
