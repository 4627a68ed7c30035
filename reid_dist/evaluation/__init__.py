"""Options, evaluation, searches, splits, parameter sweeps and pipeline files."""
