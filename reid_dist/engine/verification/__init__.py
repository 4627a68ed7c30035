"""Verification and open-set search: thresholds over all pairs or probes, and acceptance rates under them."""
