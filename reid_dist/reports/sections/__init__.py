"""What the sections of the page say: each takes a report and returns what its template names."""
