"""Outputs of a job, one class each."""
