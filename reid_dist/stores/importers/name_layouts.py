"""Layouts: how the names of a data set's images, and the lists beside them, hold labels.

Sources name the page of a data set, or a published loader by repository and file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from reid_dist.core.formatting import shortened
from reid_dist.core.registry import Registry, unknown_name
from reid_dist.errors import InputError
from reid_dist.stores.importers.dataset_lists import read_cuhk03, read_tables, read_tracks, read_veri
from reid_dist.stores.importers.label_tables import EVALUATED, LabelTable
from reid_dist.stores.labels import COLUMN_PREFIX

_LABEL_OF_GROUP = {"pid": "pids", "camid": "camids", "item_id": "item_ids"}
_LONGEST_SHOWN = 200
_COMMON_GROUPS = ("pid", "camid")

Reader: TypeAlias = Callable[[Sequence[Path]], LabelTable]


@dataclass(frozen=True, kw_only=True)
class NameLayout:
    """How the names of a data set's images, and the lists beside them, hold labels.

    Attributes
    ----------
    name, summary, source
        As in every registry; the source is the page of the data set, or a published loader by repository and file.
    patterns
        Regular expressions, the first one that fits counts; all have the same groups.  Each is searched in the base
        name, or in the path with ``/`` if the expression holds a ``/``.  The groups ``pid``, ``camid`` and ``item_id``
        are these labels; any other group is a label column, which must be whole numbers.
    words
        By group: texts and what they denote, such as ``"A"`` for camera 1, or ``"unknown"`` for junk, ``-1``.
    first_camera
        The camera from which the data set counts; None where it has no cameras.
    folders
        By one or more consecutive components of the folder of an image: the set that it is in, ``query``, ``gallery``,
        or the name of one that is not evaluated.  The last ones in a path count.
    sets
        By group or column: texts and the set that a row of this label is in; `EVALUATED` for no side of its own.
    line
        A line of the data set's text lists, with the group ``name`` and those of `patterns`; None where a line is a
        name.
    list_sets
        By the name of a list (with ``*``): the set that it lists.
    read
        Reads lists of another form; None for text lists.
    stems
        Whether lists hold names without the suffix of the file.
    is_limited
        Whether the pattern is that of a user, which may take for ever, and is searched in a bounded time.
    """

    name: str
    summary: str
    source: str
    patterns: tuple[re.Pattern[str], ...] = ()
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    first_camera: int | None = 1
    folders: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    line: re.Pattern[str] | None = None
    list_sets: Mapping[str, str] = field(default_factory=dict)
    read: Reader | None = None
    stems: bool = False
    is_limited: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the patterns, in their order."""
        return tuple(self.patterns[0].groupindex) if self.patterns else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that names of this layout hold, by what they are: ``pids``, ``camids``, ``columns/NAME``."""
        return tuple(map(label_of_group, self.groups))

    @property
    def form(self) -> str:
        """The patterns as text."""
        return " or ".join(pattern.pattern for pattern in self.patterns)

    def with_words(self, words: Mapping[str, Mapping[str, int]]) -> NameLayout:
        """Return the layout with further words, by group; InputError for a group that it does not have."""
        known = {*self.groups, *({} if self.line is None else self.line.groupindex), *_COMMON_GROUPS}
        for group, numbers in words.items():
            if group not in known:
                raise unknown_name("group of words", group, known - {"name"})
            for text, number in numbers.items():
                if isinstance(number, bool) or not isinstance(number, int):
                    raise InputError(f"the word {text!r} of {group} must denote a whole number, not {number!r}")
        merged = {group: dict(known_words) for group, known_words in self.words.items()}
        for group, numbers in words.items():
            merged.setdefault(group, {}).update({text: str(number) for text, number in numbers.items()})
        return replace(self, words=merged)


def label_of_group(group: str) -> str:
    """Return what the group of a pattern is."""
    return _LABEL_OF_GROUP.get(group, COLUMN_PREFIX + group)


def layout_of_pattern(pattern: str) -> NameLayout:
    """Make a layout of a regular expression."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(
            f"--pattern {shortened(pattern, _LONGEST_SHOWN)!r} is no regular expression: {error}"
        ) from None
    if not {"pid", "camid"} & set(compiled.groupindex):
        raise InputError(
            f"--pattern {pattern!r} has neither a group pid nor a group camid; write them as (?P<pid>[0-9]+) and "
            "(?P<camid>[0-9]+)"
        )
    return NameLayout(
        name="--pattern",
        summary="a pattern of this command",
        source=pattern,
        patterns=(compiled,),
        first_camera=None,
        is_limited=True,
    )


_TORCHREID = "KaiyangZhou/deep-person-reid torchreid/data/datasets/"
_FAST_REID = "JDAI-CV/fast-reid fastreid/data/datasets/"
_SIMPLE_CCREID = "guxinqian/Simple-CCReID data/datasets/"
_LLCM = "ZYK100/LLCM DEEN/data_manager.py"

_QUERY, _GALLERY, _TRAIN, _VALIDATION = "query", "gallery", "train", "val"
_PLAIN_FOLDERS = {"query": _QUERY, "gallery": _GALLERY, "train": _TRAIN}
# Those of the data sets, and those into which layumi/Person_reID_baseline_pytorch prepare.py sorts them.
_MARKET_FOLDERS = {
    "bounding_box_test": _GALLERY, "bounding_box_train": _TRAIN, "train_all": _TRAIN, "val": _VALIDATION,
    **_PLAIN_FOLDERS,
}  # fmt: skip


def _patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


def _each(texts: str, name: str) -> Mapping[str, str]:
    """Give every text the same name."""
    return dict.fromkeys(texts.split(), name)


MARKET1501 = NameLayout(
    name="market1501",
    summary="query/0002_c1s1_000451_03.jpg, -1_c3s2_012345_00.jpg (junk): pid, then camera from 1; also where no "
    "layout is given",
    source=f"Zheng et al., ICCV 2015; {_TORCHREID}image/market1501.py",
    patterns=_patterns(r"^(?P<pid>-1|[0-9]+)_c(?P<camid>[0-9]+)(?:s[0-9]+)?_"),
    folders=_MARKET_FOLDERS,
)

DUKEMTMCREID = NameLayout(
    name="dukemtmcreid",
    summary="query/0005_c2_f0046985.jpg: pid, camera from 1",
    source=f"Ristani et al., ECCVW 2016; {_TORCHREID}image/dukemtmcreid.py",
    patterns=_patterns(r"^(?P<pid>[0-9]+)_c(?P<camid>[1-8])_f[0-9]+"),
    folders=_MARKET_FOLDERS,
)

PRCC = NameLayout(
    name="prcc",
    summary="rgb/test/A/001/cropped_rgb001.jpg: camera (A, B, C are 1, 2, 3), pid, clothes (A and B 1, C 2); "
    "queries of C, in other clothes than the gallery, A; train/001/A_cropped_rgb001.jpg",
    source=f"Yang et al., TPAMI 2019; {_SIMPLE_CCREID}prcc.py",
    patterns=_patterns(
        r"(?:^|/)(?=(?P<clothes>[ABC]))(?P<camid>[ABC])/(?P<pid>[0-9]+)/[^/]+$",
        r"(?:^|/)(?P<pid>[0-9]+)/(?=(?P<clothes>[ABC]))(?P<camid>[ABC])_[^/]+$",
    ),
    words={"camid": {"A": "1", "B": "2", "C": "3"}, "clothes": {"A": "1", "B": "1", "C": "2"}},
    folders={"A": _GALLERY, "B": "B", "C": _QUERY, "train": _TRAIN, "val": _VALIDATION},
)

LAYOUTS: Registry[NameLayout] = Registry("layout")
for _each_layout in (
    # ---- persons -----------------------------------------------------------------------------------------------------
    MARKET1501,
    DUKEMTMCREID,
    replace(
        DUKEMTMCREID,
        name="occluded_duke",
        summary="query/0005_c2_f0046985.jpg: pid, camera from 1, as in DukeMTMC-reID",
        source="Miao et al., ICCV 2019; VlSomers/bpbreid torchreid/data/datasets/image/occluded_dukemtmc.py",
    ),
    NameLayout(
        name="cuhk03_np",
        summary="query/0003_c1_21.png: pid, camera from 1; or 1_003_1_02.png: pid 1_003 of a camera pair, view from 1; "
        "list: cuhk03_new_protocol_config_labeled.mat or …_detected.mat, with query and gallery",
        source=f"Zhong et al., CVPR 2017; {_TORCHREID}image/cuhk03.py; "
        "huanghoujing/EANet package/data/datasets/cuhk03_np_detected_png.py",
        patterns=_patterns(
            r"^(?P<pid>[0-9]+)_c(?P<camid>[12])_[0-9]+", r"^(?P<pid>[1-5]_[0-9]{3})_(?P<camid>[12])_[0-9]{2}"
        ),
        folders=_MARKET_FOLDERS,
        read=read_cuhk03,
    ),
    NameLayout(
        name="msmt17",
        summary="0000/0000_000_01_0303morning_0015_0.jpg: pid, image, camera from 1; lists: list_query.txt and "
        "list_gallery.txt, a name and its pid per line",
        source=f"Wei et al., CVPR 2018; {_TORCHREID}image/msmt17.py",
        patterns=_patterns(r"^(?P<pid>[0-9]{4})_[0-9]{3}_(?P<camid>[0-9]{2})_[0-9]{4}"),
        line=re.compile(r"(?P<name>.*\S)\s+(?P<pid>[0-9]+)"),
        list_sets={"list_query*": _QUERY, "list_gallery*": _GALLERY, "list_train*": _TRAIN, "list_val*": _VALIDATION},
    ),
    NameLayout(
        name="mars",
        summary="0065C1T0002F0016.jpg, 00-1C1T0001F001.jpg (junk): pid, camera from 1, tracklet, frame; lists: "
        "tracks_test_info.mat and query_IDX.mat, of tracks in their order, with test_name.txt of images",
        source=f"Zheng et al., ECCV 2016; {_TORCHREID}video/mars.py",
        patterns=_patterns(r"^(?P<pid>00-1|[0-9]{4})C(?P<camid>[1-6])T(?P<tracklet>[0-9]{4})F(?P<frame>[0-9]+)"),
        words={"pid": {"00-1": "-1"}},
        read=read_tracks,
    ),
    NameLayout(
        name="ag_reid",
        summary="query/P0001T04041A0/P0001T04041A0C0F31.jpg: pid (person, time and altitude: 0001T04041A0), camera "
        "from 0 (0 aerial, 2 wearable, 3 CCTV), frame",
        source="huynguyen792/AG-ReID.v2 README.md and agreidtools/datasets/agreidv2.py; "
        "agreid23/AG-ReID fastreid/data/datasets/agreid.py",
        patterns=_patterns(r"^P(?P<pid>[0-9]+T[0-9]+A[0-9]+)C(?P<camid>[0-9]+)F(?P<frame>[0-9]+)"),
        first_camera=0,
        folders={**_MARKET_FOLDERS, "gallery_add_on": _GALLERY},
    ),
    # ---- persons in changed clothes ----------------------------------------------------------------------------------
    NameLayout(
        name="last",
        summary="test/query/000001_….jpg: pid; no cameras (--protocol no_cameras)",
        source="Shu et al., arXiv 2105.15076; shuxjweb/last data/datasets/last.py",
        patterns=_patterns(r"^(?P<pid>[0-9]+)_"),
        first_camera=None,
        folders={
            "test/query": _QUERY,
            "test/gallery": _GALLERY,
            "val/query": _VALIDATION,
            "val/gallery": _VALIDATION,
            "train": _TRAIN,
        },
    ),
    PRCC,
    replace(
        PRCC,
        name="prcc_same_clothes",
        summary="as prcc, with the queries of B, in the same clothes as the gallery, A",
        folders={**PRCC.folders, "B": _QUERY, "C": "C"},
    ),
    NameLayout(
        name="ltcc",
        summary="query/148_1_c3_014811.png: pid, clothes, camera from 1; gallery in test",
        source=f"Qian et al., ACCV 2020; {_SIMPLE_CCREID}ltcc.py",
        patterns=_patterns(r"^(?P<pid>[0-9]+)_(?P<clothes>[0-9]+)_c(?P<camid>[0-9]+)_"),
        folders={"query": _QUERY, "test": _GALLERY, "train": _TRAIN},
    ),
    NameLayout(
        name="vc_clothes",
        summary="query/0001-02-01-03.jpg: pid, camera from 1, clothes, image",
        source=f"Wan et al., CVPRW 2020; {_SIMPLE_CCREID}vcclothes.py",
        patterns=_patterns(r"^(?P<pid>[0-9]+)-(?P<camid>[0-9]+)-(?P<clothes>[0-9]+)-[0-9]+"),
        folders=_PLAIN_FOLDERS,
    ),
    NameLayout(
        name="celeb_reid",
        summary="query/12_34_0.jpg: pid, number of the image, whose first digit (3) is the camera of the authors' "
        "code; no cameras otherwise (--protocol no_cameras)",
        source="Huang et al., IJCNN 2019; Huang-3/Celeb-reID reid/data_loader_1stream.py",
        patterns=_patterns(r"^(?P<pid>-1|[0-9]+)_(?P<camid>[0-9])[0-9]*_"),
        first_camera=None,
        folders=_PLAIN_FOLDERS,
    ),
    # ---- visible and infrared light ----------------------------------------------------------------------------------
    NameLayout(
        name="sysu_mm01",
        summary="cam3/0006/0001.jpg: camera from 1, pid, modality (1 visible, 2 infrared: cameras 3 and 6); infrared "
        "queries, visible gallery",
        source=f"Wu et al., ICCV 2017; {_LLCM}",
        patterns=_patterns(r"(?:^|/)cam(?=(?P<modality>[1-6]))(?P<camid>[1-6])/(?P<pid>[0-9]+)/[^/]+$"),
        words={"modality": {**_each("1 2 4 5", "1"), **_each("3 6", "2")}},
        sets={"camid": {**_each("1 2 4 5", _GALLERY), **_each("3 6", _QUERY)}},
    ),
    NameLayout(
        name="regdb",
        summary="Visible/285/male_back_v_05528_285.bmp: pid (folder), camera as modality (1 visible, 2 thermal); sides "
        "by --query-list idx/test_visible_1.txt and --gallery-list idx/test_thermal_1.txt, a name and a label per line",
        source=f"Nguyen et al., Sensors 2017; {_LLCM}",
        patterns=_patterns(
            r"(?:^|/)(?=(?P<modality>Visible|Thermal))(?P<camid>Visible|Thermal)/(?P<pid>[0-9]+)/[^/]+$"
        ),
        words={"camid": {"Visible": "1", "Thermal": "2"}, "modality": {"Visible": "1", "Thermal": "2"}},
        line=re.compile(r"(?P<name>.*\S)\s+[0-9]+"),
    ),
    NameLayout(
        name="llcm",
        summary="test_nir/cam1/0003/0003_c01_s185734_f3195_nir.jpg: pid, camera from 1, modality (1 visible, 2 near "
        "infrared); sides by --query-folder test_nir --gallery-folder test_vis, or the other way round",
        source=f"Zhang and Wang, CVPR 2023; {_LLCM}",
        patterns=_patterns(r"^(?P<pid>[0-9]+)_c(?P<camid>[0-9]+)_s[0-9]+_f[0-9]+_(?P<modality>vis|nir)"),
        words={"modality": {"vis": "1", "nir": "2"}},
        folders={"train_vis": _TRAIN, "train_nir": _TRAIN},
        line=re.compile(r"(?P<name>.*\S)\s+[0-9]+"),
    ),
    # ---- vehicles ----------------------------------------------------------------------------------------------------
    NameLayout(
        name="veri776",
        summary="image_query/0002_c002_00030600_0.jpg: pid, camera from 1; lists: test_label.xml (also colour, type), "
        "test_track.txt (tracklet); sides by folder or by --query-list name_query.txt --gallery-list name_test.txt",
        source=f"Liu et al., ECCV 2016; {_FAST_REID}veri.py; SlimShadys/Vehicle-ReID datasets/veri_776.py",
        patterns=_patterns(r"^(?P<pid>[0-9]+)_c(?P<camid>[0-9]{3})_"),
        folders={"image_query": _QUERY, "image_test": _GALLERY, "image_train": _TRAIN},
        read=read_veri,
    ),
    NameLayout(
        name="vehicleid",
        summary="0000001.jpg; list: test_list_800.txt, an image without suffix and its pid per line; no cameras; "
        "galleries of one image per pid: `reid-dist splits`",
        source=f"Liu et al., CVPR 2016; {_FAST_REID}vehicleid.py",
        first_camera=None,
        line=re.compile(r"(?P<name>[0-9]+)\s+(?P<pid>[0-9]+)"),
        list_sets={"train_list*": _TRAIN},
        stems=True,
    ),
    NameLayout(
        name="veri_wild",
        summary="images/00001/000001.jpg; list: vehicle_info.txt, id/image;camera;… per line; sides by --query-list "
        "test_3000_query.txt --gallery-list test_3000.txt",
        source=f"Lou et al., CVPR 2019; {_FAST_REID}veriwild.py",
        patterns=_patterns(r"(?:^|/)(?P<pid>[0-9]+)/[^/]+$"),
        line=re.compile(r"(?P<name>(?P<pid>[0-9]+)/[0-9]+);(?P<camid>[0-9]+)(?:;.*)?"),
        stems=True,
    ),
    # ---- other records -----------------------------------------------------------------------------------------------
    NameLayout(
        name="cuhk_pedes",
        summary="list: reid_raw.json, objects with file_path, id and split (test is evaluated, not train and val); no "
        "cameras",
        source="Li et al., CVPR 2017; ShuangLI59/Person-Search-with-Natural-Language-Description README.md; "
        "anosorae/IRRA datasets/cuhkpedes.py",
        first_camera=None,
        sets={"split": {"test": EVALUATED, "train": _TRAIN, "val": _VALIDATION}},
        read=read_tables,
    ),
    NameLayout(
        name="wildlife",
        summary="list: a table with path and identity (unknown is junk), and split if there is one; no cameras",
        source="WildlifeDatasets/wildlife-datasets docs/dataframe.md",
        words={"pid": {"unknown": "-1"}},
        first_camera=None,
        sets={
            "split": {"query": _QUERY, "gallery": _GALLERY, "database": _GALLERY, "train": _TRAIN, "test": EVALUATED}
        },
        read=read_tables,
    ),
    NameLayout(
        name="folder_per_identity",
        summary="anna/7.jpg: the folder of an image is its pid; no cameras",
        source="the form of torchvision.datasets.ImageFolder",
        patterns=_patterns(rf"(?:^|/)(?!(?:{'|'.join(_MARKET_FOLDERS)})/)(?P<pid>[^/]+)/[^/]+$"),
        first_camera=None,
        folders=_MARKET_FOLDERS,
    ),
):
    LAYOUTS.register(_each_layout)
