"""Protocols, and the assignment of relevant and junk gallery items to queries."""
