"""Whether the tests notice faults: single faults put into the package, and the fast tests run against each."""
