"""Definitions of metrics, their values from ranks, curves, intervals, and bounds from top-k lists."""
