"""Passes over the sets that an evaluation makes, as its progress tells them."""

from __future__ import annotations

from reid_dist.engine.task_graph import Progress


class Count(Progress):
    """Records, for each pass, the number of tasks by stage."""

    def __init__(self):
        self.passes = []
        self.done = {}

    def start(self, totals):
        self.passes.append(dict(totals))

    def advance(self, stage):
        self.done[stage] = self.done.get(stage, 0) + 1

    @property
    def list_sweeps(self):
        """Passes for top-k lists, which have a sweep and no relevant pairs before it."""
        return sum("sweep" in totals and "pairs" not in totals for totals in self.passes)

    @property
    def neighbour_sweeps(self):
        """Passes that find neighbours of all items."""
        return sum(totals.get("neighbours", 0) > 0 for totals in self.passes)

    @property
    def rankings(self):
        """Passes that count ranks: one for each evaluation."""
        return sum("pairs" in totals for totals in self.passes)
