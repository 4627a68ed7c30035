"""Nightly runs: a suite of models, data sets and jobs, its history, its gates and its page.

A night evaluates the jobs of a suite one after the other on one cluster, compares each with the history, and records it
there as soon as it ends, so that a killed night loses only the job that was running.  At the end it writes the page and
the summaries.
"""
