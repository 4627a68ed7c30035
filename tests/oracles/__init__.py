"""Obvious oracles for every protocol and metric: whole rows, sorted, in plain Python.

They share the canonical distances of `reference.py`, its ranking and its conditions for deciding a tie, and import
nothing of the package under test.  Each file is one topic, written from the formulas and slow on purpose:

    protocols      what one gallery item is to one query
    rank_metrics   functions of the ranks of the positives, and the same numbers found by walking down a list
    single_shot    the expectation over single-shot galleries, by formula and by trying every draw
    verification   pairs and thresholds: TAR@FAR, EER, ROC, DIR@FAR
    groups         groups of items as entries of a list, and the CMC over identities of SYSU-MM01
    evaluation     a whole report
    breakdowns     the report of each part, evaluated as a set of its own
    reranking      k-reciprocal re-ranking on whole matrices, each stage of it
    expansion      query expansion and database-side augmentation
"""
