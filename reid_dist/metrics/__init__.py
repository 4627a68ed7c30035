"""Metrics: definitions, curves, intervals, and bounds from top-k lists; importing this package fills the registry."""

from reid_dist.metrics import families

__all__ = ["families"]
