"""Nightly runs: a suite of models, data sets and jobs, its history, its gates and the page that shows them."""
