"""Digests and times of products on a GPU: ``python -m tests.device`` on a machine that has one."""
