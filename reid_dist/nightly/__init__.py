"""Nightly runs: a suite of models, data sets and jobs, its history, its gates and the page that shows them.

A night reads the suite, evaluates its jobs one after the other on one cluster, holds each against the history and
writes it there; in the end it writes the page and the notices.  A job is in the history as soon as it ends, so that a
night that is killed loses what was in flight and nothing else.
"""
