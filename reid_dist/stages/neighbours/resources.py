"""Where the tasks of stages run, and where their parts are kept."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.engine.task_graph import Execution, TaskGraph, execute
from reid_dist.stores import Workspace


@dataclass(frozen=True, kw_only=True)
class Resources(Execution):
    """Execution of stages, which always have a workspace."""

    workspace: Workspace

    def run(self, graph: TaskGraph) -> None:
        """Run a task graph; nothing if all of its tasks are finished.

        Its final tasks return the pairs that were read from products for them, or None.
        """
        if graph.finals:
            self.note(filter(None, execute(graph, self.client, self.n_threads, self.progress)))
