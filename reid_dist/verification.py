"""Placeholder until the real one lands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Verification:
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return {}
