"""Stages before an evaluation: neighbour search, re-ranking, query expansion and pooling."""
