"""HTML page of a night, one file without scripts, and leaderboard of a history; ``templates`` has the layouts."""
