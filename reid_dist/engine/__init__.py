"""Distances, screening, the tile loop, reductions, plans and the Dask graph."""
