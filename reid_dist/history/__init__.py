"""What a team knows of its past nights: runs of suites, their jobs, what was measured and how it was judged."""
