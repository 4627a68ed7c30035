"""A program that takes a file of both sides through the package, and prints what it finds as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RERANK = "k_reciprocal(k1=6,k2=3)"


def results(source: Path, folder: Path) -> dict[str, Any]:
    """Digests of evaluations, neighbours, rows and checks; two equal processes find the same."""
    import numpy as np

    from reid_dist import (
        DistanceBlock,
        FeatureSet,
        compare,
        compare_runs,
        evaluate,
        ingest,
        nearest,
        reranked_distances,
        sweep_parameters,
    )
    from reid_dist.nightly.memory import peak_bytes, reset_peaks
    from reid_dist.reports import Report
    from reid_dist.stores import check_store

    query, gallery = ingest(source, folder / "stores", chunk_rows=64)
    in_memory = FeatureSet.from_arrays(query.read(0, query.n_rows), query.pids, query.camids)
    plain = evaluate(query, gallery, topk=5)
    rerank = {"rerank": RERANK, "expand": "aqe(k=3)", "workspace": folder / "workspace"}
    reranked, again = (evaluate(query, gallery, **rerank) for _ in range(2))
    swept = sweep_parameters(query, gallery, rerank="k_reciprocal", k1="5:7", workspace=folder / "workspace")
    for name, report in (("plain", plain), ("reranked", reranked)):
        report.save(folder / name)
    loaded = Report.load(folder / "plain")
    DistanceBlock.from_array(reranked_distances(query, gallery, rerank=RERANK)).save(folder / "block.npy")
    reset_peaks(None)
    reports = (plain, evaluate(in_memory, gallery, topk=5), reranked, again, swept, loaded)
    return {
        "digests": [each.result_digest for each in reports],
        "stores": [query.content_digest, gallery.content_digest],
        "block": DistanceBlock.open(folder / "block.npy").content_digest,
        "neighbours": nearest(query, gallery, k=5).index.tolist(),
        # The second time from verified chunks, single rows.
        "rows": [float(gallery.read_rows(np.arange(0, gallery.n_rows, 2)).sum(dtype=np.float64)) for _ in range(2)],
        "damaged": [check_store(each.uri).damaged for each in (query, gallery)],
        "difference": compare(loaded, reranked).metrics[0].difference,
        "table": compare_runs([loaded, reranked]).to_csv(),
        # Lock files are hidden.
        "left": sorted(each.name for each in (folder / "stores").glob("[!.]*")),
        "cores": plain.environment["cores"],
        "knows peaks": peak_bytes(None) is not None,
    }


if __name__ == "__main__":
    print(json.dumps(results(*map(Path, sys.argv[1:]))))
