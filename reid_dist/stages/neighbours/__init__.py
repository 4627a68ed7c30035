"""Exact nearest neighbours of feature sets, as lists in a workspace."""
