"""Reductions of tiles to small partial results that merge."""
