"""What stages take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage takes, computed from shapes alone; `one + other` is that of one stage and then another.

    Attributes
    ----------
    flop
        Floating-point operations of its products.
    bytes_read
        Bytes of features that its tasks read.
    task_bytes
        Projected peak memory of one task, in bytes.
    kept
        Bytes that it leaves in the workspace.
    temporary
        Most bytes that are in the workspace besides, until it ends.
    """

    flop: int = 0
    bytes_read: int = 0
    task_bytes: int = 0
    kept: int = 0
    temporary: int = 0

    def __add__(self, after: Cost) -> Cost:
        kept = self.kept + after.kept
        return Cost(
            self.flop + after.flop,
            self.bytes_read + after.bytes_read,
            max(self.task_bytes, after.task_bytes),
            kept,
            max(self.workspace_bytes, self.kept + after.workspace_bytes) - kept,
        )

    @property
    def workspace_bytes(self) -> int:
        """Largest size of the workspace, in bytes."""
        return self.kept + self.temporary
