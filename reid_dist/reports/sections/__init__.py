"""Contents of the sections of the page: each takes a report and returns what its template names."""
