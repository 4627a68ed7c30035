"""Benchmarks of buildings, landmarks, products and animals."""

from __future__ import annotations

from reid_dist.evaluation.benchmarks.definition import BENCHMARKS, Benchmark
from reid_dist.relevance.protocols import PROTOCOLS, compose_protocol

_NO_CAMERAS = PROTOCOLS.get("no_cameras")
_SAME_SET = PROTOCOLS.get("same_set")
_LANDMARKS = "tensorflow/models research/delf/delf/python/datasets/google_landmarks_dataset/metrics.py"
_PROXY_ANCHOR = "tjddus9597/Proxy-Anchor-CVPR2020 code/utils.py"

# ---- ground-truth lists ----------------------------------------------------------------------------------------------

for _name, _title in (("oxford5k", "Oxford5k"), ("paris6k", "Paris6k")):
    BENCHMARKS.register(
        Benchmark(
            name=_name,
            summary=f"{_title}: lists good, ok and junk per query (ground_truth), trapezoid AP",
            source="compute_ap.cpp of the data set, as in oddconcepts/oxford-benchmark compute_ap.cpp",
            protocol=PROTOCOLS.get("oxford"),
        )
    )
for _level in ("easy", "medium", "hard"):
    BENCHMARKS.register(
        Benchmark(
            name=f"revisitop_{_level}",
            summary=f"ROxford and RParis, {_level}: lists easy, hard and junk per query (ground_truth)",
            source="filipradenovic/revisitop python/evaluate.py",
            protocol=PROTOCOLS.get(f"revisitop_{_level}"),
            metrics=("mAP_trapezoid", "P_clipped@1", "P_clipped@5", "P_clipped@10"),
        )
    )
BENCHMARKS.register(
    Benchmark(
        name="gldv2",
        summary="Google Landmarks v2, retrieval: lists ok per query (ground_truth), mAP among the first 100 over at "
        "most 100 relevant images",
        source=f"{_LANDMARKS} (MeanAveragePrecision)",
        protocol=compose_protocol(
            "gldv2", base="oxford", source=_LANDMARKS, relevant_lists=["ok"], junk_lists=["junk"], ap_family="mAP"
        ),
        metrics=("mAP_min@100", "P@1", "P@10", "P@100"),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="gldv2_recognition",
        summary="Google Landmarks v2, recognition by the nearest image: GAP over all queries; one without a landmark "
        "has a pid of its own",
        source=f"{_LANDMARKS} (GlobalAveragePrecision, Top1Accuracy)",
        protocol=_NO_CAMERAS,
        metrics=("GAP", "CMC@1"),
    )
)

# ---- a set against itself --------------------------------------------------------------------------------------------

BENCHMARKS.register(
    Benchmark(
        name="sop",
        summary="Stanford Online Products: every image against all others; Recall@K is CMC@K",
        source="rksltnl/Deep-Metric-Learning-CVPR16 code/evaluation/evaluate_recall.m",
        protocol=_SAME_SET,
        metrics=("CMC@1", "CMC@10", "CMC@100", "CMC@1000"),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="cub200",
        summary="CUB-200-2011 (and Cars196): every image against all others; Recall@K is CMC@K",
        source=f"{_PROXY_ANCHOR} (evaluate_cos)",
        protocol=_SAME_SET,
        metrics=("CMC@1", "CMC@2", "CMC@4", "CMC@8", "CMC@16", "CMC@32"),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="ukbench",
        summary="UKBench: every image against all, itself among them; the N-S score is 4 times P@4",
        source="the page of the data set, vis.uky.edu/~stewe/ukbench (Performance Measures)",
        protocol=_NO_CAMERAS,
        metrics=("P@4",),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="holidays",
        summary="INRIA Holidays: 500 queries against all images, their own left out; trapezoid AP",
        source="INRIA's holidays_map.py, as in AIBluefisher/DAGSfM lib/mirror/data/holidays/holidays_map.py",
        protocol=compose_protocol(
            "holidays", base=_SAME_SET, source="INRIA's holidays_map.py", ap_family="mAP_trapezoid"
        ),
        metrics=("mAP_trapezoid",),
    )
)

# ---- two sets --------------------------------------------------------------------------------------------------------

BENCHMARKS.register(
    Benchmark(
        name="in_shop",
        summary="In-Shop Clothes Retrieval: queries against a gallery; Recall@K is CMC@K",
        source=f"{_PROXY_ANCHOR} (evaluate_cos_Inshop)",
        protocol=_NO_CAMERAS,
        metrics=("CMC@1", "CMC@10", "CMC@20", "CMC@30", "CMC@40", "CMC@50"),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="wildlife_open",
        summary="animals, some of them not in the database: balanced accuracy on known and on unknown individuals at a "
        "distance of one's choice (BAKS@T=x, BAUS@T=x)",
        source="WildlifeDatasets/wildlife-datasets wildlife_datasets/metrics/metrics.py (BAKS, BAUS)",
        protocol=_NO_CAMERAS,
        layout="wildlife",
        thresholded=("BAKS", "BAUS"),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="wildlife_closed",
        summary="animals, every query in the database: accuracy of the nearest image (CMC@1) and of the first k "
        "identities",
        source="WildlifeDatasets/wildlife-tools wildlife_tools/inference/classifier.py (KnnClassifier, TopkClassifier)",
        protocol=compose_protocol(
            "wildlife_closed", base=_NO_CAMERAS, source="WildlifeDatasets/wildlife-tools", collapse="CMC:pid"
        ),
        layout="wildlife",
        metrics=("CMC@1", "CMC@5", "CMC@10", "mAP"),
    )
)
