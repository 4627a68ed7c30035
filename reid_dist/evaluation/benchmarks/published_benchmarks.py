"""Benchmarks of persons, vehicles, buildings, landmarks, products and animals.

A source names the published evaluation code by repository and file.  Where two codes in use disagree, each has a name
of its own.
"""

from __future__ import annotations

from dataclasses import replace

from reid_dist.evaluation.benchmarks.benchmark import BENCHMARKS, Benchmark
from reid_dist.evaluation.draws import Draw
from reid_dist.relevance.protocols import PROTOCOLS, compose_protocol

_TORCHREID = "KaiyangZhou/deep-person-reid torchreid/metrics/rank.py"
_CCREID = "guxinqian/Simple-CCReID"
_CCREID_METRICS = f"{_CCREID} tools/eval_metrics.py"
_FAST_REID = "JDAI-CV/fast-reid fastreid/evaluation/rank.py (eval_market1501), fastreid/data/datasets"
_SYSU = "wuancong/SYSU-MM01 evaluation/evaluation_SYSU_MM01.m"
_LLCM = "ZYK100/LLCM DEEN"
_LANDMARKS = "tensorflow/models research/delf/delf/python/datasets/google_landmarks_dataset/metrics.py"
_PROXY_ANCHOR = "tjddus9597/Proxy-Anchor-CVPR2020 code/utils.py"

_MARKET1501 = PROTOCOLS.get("market1501")
_MATLAB = PROTOCOLS.get("market1501_matlab")
_NO_CAMERAS = PROTOCOLS.get("no_cameras")
_SAME_SET = PROTOCOLS.get("same_set")

_RANKS = ("mAP", "mINP", "CMC@1", "CMC@5", "CMC@10", "CMC@20")


def _by_its_authors(of: Benchmark, source: str) -> None:
    """Register the evaluation by the MATLAB code of the authors of a data set."""
    summary = f"{of.name} as its authors compute it: trapezoid AP, means over all queries"
    name = f"{of.name}_matlab"
    BENCHMARKS.register(replace(of, name=name, other_of=of.name, summary=summary, source=source, protocol=_MATLAB))


# ---- persons ---------------------------------------------------------------------------------------------------------

MARKET1501 = BENCHMARKS.register(
    Benchmark(
        name="market1501",
        summary="Market-1501: same camera junk, rectangle AP, invalid queries left out",
        source=f"{_TORCHREID} (eval_market1501); JDAI-CV/fast-reid fastreid/evaluation/rank.py",
        protocol=_MARKET1501,
        layout="market1501",
    )
)
_by_its_authors(
    MARKET1501,
    "zhunzhong07/person-re-ranking evaluation/utils/evaluation.m, evaluation/utils/compute_AP.m, as the "
    "original MATLAB code of Market-1501",
)
BENCHMARKS.register(
    replace(MARKET1501, name="dukemtmc", summary="DukeMTMC-reID, by the rules of market1501", layout="dukemtmcreid")
)
BENCHMARKS.register(replace(MARKET1501, name="msmt17", summary="MSMT17, by the rules of market1501", layout="msmt17"))
CUHK03_NP = BENCHMARKS.register(
    replace(
        MARKET1501,
        name="cuhk03_np",
        summary="CUHK03 with 767 and 700 identities, by the rules of market1501",
        layout="cuhk03_np",
    )
)
_by_its_authors(
    CUHK03_NP,
    "zhunzhong07/person-re-ranking evaluation/CUHK03_evaluation.m, evaluation/utils/evaluation.m",
)
BENCHMARKS.register(
    Benchmark(
        name="cuhk03_100",
        summary="CUHK03 with 1,367 and 100 identities: CMC over single gallery images, their exact expectation in "
        "place of ten draws per query",
        source=f"{_TORCHREID} (eval_cuhk03)",
        protocol=PROTOCOLS.get("cuhk03"),
        layout="cuhk03_np",
        runs="twenty splits into training and test",
    )
)
MARS = BENCHMARKS.register(
    replace(
        MARKET1501,
        name="mars",
        summary="MARS, one row per tracklet (`reid-dist pool`), by the rules of market1501",
        layout="mars",
    )
)
_by_its_authors(
    MARS,
    "liangzheng06/MARS-evaluation utils/evaluation_mars.m, utils/compute_AP.m",
)
BENCHMARKS.register(
    replace(
        MARKET1501,
        name="ag_reid",
        summary="AG-ReID, aerial against ground cameras by the folders of its two experiments, by the rules of "
        "market1501; an identity is a person at a time and an altitude",
        source=f"agreid23/AG-ReID fastreid/data/datasets/agreid.py; {_TORCHREID} (eval_market1501)",
        layout="ag_reid",
    )
)
BENCHMARKS.register(
    Benchmark(
        name="cuhk_pedes",
        summary="CUHK-PEDES: descriptions against images; every image of the person is relevant",
        source="anosorae/IRRA utils/metrics.py",
        protocol=_NO_CAMERAS,
        layout="cuhk_pedes",
        metrics=("CMC@1", "CMC@5", "CMC@10", "mAP", "mINP"),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="last",
        summary="LaST: every image has a camera of its own, so that none is junk",
        source="shuxjweb/last data/datasets/last.py, data/datasets/eval_reid.py",
        protocol=_NO_CAMERAS,
        layout="last",
    )
)

# ---- persons in changed clothes --------------------------------------------------------------------------------------

LTCC_GENERAL = BENCHMARKS.register(
    Benchmark(
        name="ltcc_general",
        summary="LTCC, any clothes, by the rules of market1501",
        source=f"{_CCREID_METRICS} (evaluate)",
        protocol=_MARKET1501,
        layout="ltcc",
    )
)
BENCHMARKS.register(
    replace(
        LTCC_GENERAL,
        name="ltcc_changed",
        summary="LTCC, changed clothes: images of the query's person in the same clothes are junk as well",
        source=f"{_CCREID_METRICS} (evaluate_with_clothes, CC)",
        protocol=compose_protocol(
            "ltcc_changed", base=_MARKET1501, source=_CCREID_METRICS, junk=[["pid", "camid"], ["pid", "clothes"]]
        ),
    )
)
BENCHMARKS.register(
    replace(
        LTCC_GENERAL,
        name="ltcc_same",
        summary="LTCC, same clothes: images of the query's person in other clothes are junk as well",
        source=f"{_CCREID_METRICS} (evaluate_with_clothes, SC)",
        protocol=compose_protocol(
            "ltcc_same", base=_MARKET1501, source=_CCREID_METRICS, junk=[["pid", "camid"], ["pid", "!clothes"]]
        ),
    )
)

for _name, _clothes, _camera, _letter in (("prcc_same", "same", 2, "B"), ("prcc_changed", "changed", 3, "C")):
    _prcc = BENCHMARKS.register(
        Benchmark(
            name=_name,
            summary=f"PRCC, {_clothes} clothes: queries of camera {_letter} against all images of camera A",
            source=f"{_CCREID} test.py (test_prcc), tools/eval_metrics.py (evaluate)",
            protocol=compose_protocol(
                _name, base=_MARKET1501, source=_CCREID_METRICS, query_cameras=[_camera], gallery_cameras=[1]
            ),
            layout="prcc",
            cameras=(1, 2, 3),
        )
    )
    BENCHMARKS.register(
        replace(
            _prcc,
            name=f"{_name}_single_shot",
            other_of=_name,
            summary=f"PRCC, {_clothes} clothes: queries of camera {_letter} against one image of each identity of "
            "camera A, mean over ten draws",
            source=f"{_CCREID} data/datasets/prcc.py (gallery_idx), with the code of its issue 7",
            draw=Draw(repeats=10),
        )
    )

for _name, _which, _cameras in (
    ("vc_clothes_all", "all four cameras", None),
    ("vc_clothes_same", "same clothes: queries and gallery of cameras 2 and 3", (2, 3)),
    ("vc_clothes_changed", "changed clothes: queries and gallery of cameras 3 and 4", (3, 4)),
):
    BENCHMARKS.register(
        Benchmark(
            name=_name,
            summary=f"VC-Clothes, {_which}, by the rules of market1501",
            source=f"{_CCREID} data/datasets/vcclothes.py, tools/eval_metrics.py (evaluate)",
            protocol=_MARKET1501
            if _cameras is None
            else compose_protocol(
                _name, base=_MARKET1501, source=_CCREID_METRICS, query_cameras=_cameras, gallery_cameras=_cameras
            ),
            layout="vc_clothes",
            cameras=(1, 2, 3, 4),
        )
    )

# ---- visible and infrared light --------------------------------------------------------------------------------------

for _search, _gallery_cameras in (("all", (1, 2, 4, 5)), ("indoor", (1, 2))):
    for _shots, _n_rows in (("single", 1), ("multi", 10)):
        _listed = ", ".join(map(str, _gallery_cameras))
        BENCHMARKS.register(
            Benchmark(
                name=f"sysu_mm01_{_search}_{_shots}",
                summary=f"SYSU-MM01, {_search} search, {_shots} shot: infrared queries of cameras 3 and 6 against "
                f"{_n_rows} of each identity under each of cameras {_listed}; cameras 2 and 3 are one, the CMC ranks "
                "identities",
                source=f"{_SYSU}, evaluation/get_cmc_multi_cam.m, evaluation/get_map_multi_cam.m; its own draws are "
                "rand_perm_cam.mat",
                protocol=compose_protocol(
                    f"sysu_mm01_{_search}",
                    summary="every item of the query's place is junk; cameras 2 and 3 are one place",
                    source=_SYSU,
                    junk=[["camid"]],
                    query_cameras=[3, 6],
                    gallery_cameras=_gallery_cameras,
                    merged_cameras=[[2, 3]],
                    collapse="CMC:pid",
                ),
                layout="sysu_mm01",
                metrics=_RANKS,
                draw=Draw(repeats=10, per_identity=_n_rows, per_camera=True),
                cameras=(1, 2, 3, 4, 5, 6),
            )
        )

_LLCM_IR_TO_VIS = BENCHMARKS.register(
    Benchmark(
        name="llcm",
        summary="LLCM, IR to VIS: near infrared queries against one visible image of each identity under each camera, "
        "ten draws; the CMC ranks identities",
        source=f"{_LLCM}/eval_metrics.py (eval_llcm), {_LLCM}/data_manager.py (process_gallery_llcm)",
        protocol=compose_protocol("llcm", base=_MARKET1501, source=f"{_LLCM}/eval_metrics.py", collapse="CMC:pid"),
        layout="llcm",
        metrics=_RANKS,
        draw=Draw(repeats=10, per_camera=True),
    )
)
BENCHMARKS.register(
    replace(
        _LLCM_IR_TO_VIS,
        name="llcm_vis_to_ir",
        summary="LLCM, what its code calls VIS to IR: one near infrared query of each identity under each camera, ten "
        "draws, against all visible images",
        source=f"{_LLCM}/test.py (test_mode [2, 1]), {_LLCM}/eval_metrics.py (eval_llcm), {_LLCM}/data_manager.py",
        draw=Draw(repeats=10, per_camera=True, of_queries=True),
    )
)
BENCHMARKS.register(
    Benchmark(
        name="regdb",
        summary="RegDB, either direction: every image of the other camera counts",
        source=f"{_LLCM}/eval_metrics.py (eval_regdb); mangye16/Cross-Modal-Re-ID-baseline eval_metrics.py",
        protocol=_NO_CAMERAS,
        layout="regdb",
        metrics=_RANKS,
        runs="ten models, one per split into training and test",
    )
)

# ---- vehicles --------------------------------------------------------------------------------------------------------

VERI776 = BENCHMARKS.register(
    Benchmark(
        name="veri776",
        summary="VeRi-776, image to image, by the rules of market1501",
        source=f"{_FAST_REID}/veri.py",
        protocol=_MARKET1501,
        layout="veri776",
    )
)
_by_its_authors(
    VERI776,
    "JDAI-CV/VeRidataset baseline_evaluation_FACT_776.m, compute_AP.m",
)
BENCHMARKS.register(
    replace(
        VERI776,
        name="veri776_image_to_track",
        other_of="veri776",
        summary="VeRi-776, image to track: tracks rank at their nearest kept image; needs the label tracklet of the "
        "gallery, from test_track.txt",
        source="Liu et al., ECCV 2016 (paper; its authors' code, JDAI-CV/VeRidataset, has only image-to-image search)",
        protocol=compose_protocol(
            "veri776_image_to_track", base=_MARKET1501, source="Liu et al., ECCV 2016", collapse="tracklet"
        ),
    )
)
for _size in (800, 1600, 2400):
    BENCHMARKS.register(
        Benchmark(
            name=f"vehicleid_{_size}",
            summary=f"VehicleID, {_size:,} vehicles: one image of each is the gallery, the others are the queries, ten "
            "draws; give one set twice",
            source=f"{_FAST_REID}/vehicleid.py; Liu et al., CVPR 2016, for ten draws",
            protocol=_NO_CAMERAS,
            layout="vehicleid",
            metrics=("CMC@1", "CMC@5", "mAP"),
            draw=Draw(repeats=10, rest_as_queries=True),
            identities=_size,
        )
    )
for _name, _size in (("small", 3000), ("medium", 5000), ("large", 10000)):
    _wild = BENCHMARKS.register(
        Benchmark(
            name=f"veri_wild_{_name}",
            summary=f"VERI-Wild, {_size:,} vehicles, as its authors compute it: no image is junk",
            source="PKU-IMRE/VERI-Wild test-code/cmc_wild.py, test-code/mAP.py",
            protocol=_NO_CAMERAS,
            layout="veri_wild",
            metrics=("mAP", "CMC@1", "CMC@5"),
            identities=_size,
        )
    )
    BENCHMARKS.register(
        replace(
            _wild,
            name=f"veri_wild_{_name}_cross_camera",
            other_of=_wild.name,
            summary=f"VERI-Wild, {_size:,} vehicles, by the rules of market1501: same camera junk",
            source=f"{_FAST_REID}/veriwild.py",
            protocol=_MARKET1501,
        )
    )

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
        summary="Google Landmarks v2, recognition by the nearest image: GAP over all queries; a query without a "
        "landmark has a pid of its own",
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
        "distance threshold of your choice (BAKS@T=x, BAUS@T=x)",
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
