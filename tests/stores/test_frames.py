"""Feature sets of data frames: of pandas, of Arrow, and of any library whose tables are Arrow streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from arrow_streams import Stream

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import InputError

N, DIM = 2500, 12
"""More rows than are converted at once."""

ROWS = np.random.default_rng(1).standard_normal((N, DIM)).astype(np.float32)
LABELS: dict[str, Any] = {
    "person": [f"p{row % 40}" for row in range(N)],
    "cam": np.arange(N) % 5,
    "file": [f"{row}.jpg" for row in range(N)],
    "item_id": np.arange(N) + 7,
    "clothes": np.arange(N) % 3,
}
EXPECTED = FeatureSet.from_arrays(
    ROWS, LABELS["person"], LABELS["cam"], LABELS["item_id"],
    image_paths=LABELS["file"], columns={"clothes": LABELS["clothes"]},
)  # fmt: skip


def with_lists(**more: Any) -> pd.DataFrame:
    return pd.DataFrame({"emb": ROWS.tolist(), **LABELS, **more}).astype({"person": "category"})


def with_arrays() -> pd.DataFrame:
    return pd.DataFrame({"emb": list(ROWS), **LABELS}, index=np.arange(N) + 100)


def of_arrow(kind: Callable[..., Any] = pa.list_) -> pa.Table:
    """In batches of several lengths."""
    length = () if kind is not fixed else (DIM,)
    emb = pa.array(list(ROWS), kind(pa.float32(), *length))
    table = pa.table({"emb": emb, **LABELS})
    return pa.concat_tables([table.slice(0, 7), table.slice(7, 1800), table.slice(1807)])


def fixed(value: pa.DataType, length: int) -> pa.DataType:
    """The type of arrays of one length, as columns of polars have it."""
    return pa.list_(value, length)


FRAMES = {
    "lists": with_lists,
    "arrays": with_arrays,
    "arrow": of_arrow,
    "large lists": lambda: of_arrow(pa.large_list),
    "fixed": lambda: of_arrow(fixed),
    "stream": lambda: Stream(of_arrow(fixed)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_the_set_of_its_arrays(name: str) -> None:
    found = FeatureSet.from_frame(
        FRAMES[name](), features="emb", pid="person", camid="cam", image_path="file", columns=["clothes"]
    )
    assert found.content_digest == EXPECTED.content_digest


def test_customary_names_need_no_arguments() -> None:
    named = {"emb": "embedding", "person": "label", "cam": "camera", "file": "path"}
    found = FeatureSet.from_frame(with_arrays().rename(columns=named))
    assert found.content_digest == EXPECTED.content_digest
    renamed = FeatureSet.from_frame(
        with_arrays().rename(columns={"clothes": "outfit"}), "emb", "person", "cam", "item_id", "file",
        columns={"clothes": "outfit"},
    )  # fmt: skip
    assert renamed.content_digest == EXPECTED.content_digest


def test_columns_side_by_side() -> None:
    numbered = {f"emb_{at}": ROWS[:, at] for at in reversed(range(DIM))}
    # Another family of numbered columns, and one of a longer name.
    others = {"x0": np.zeros(N), "x1": np.ones(N), "emb_norm": np.ones(N)}
    frame = pd.DataFrame({**LABELS, **others, **numbered})
    names = {"pid": "person", "image_path": "file", "columns": ["clothes"]}
    assert FeatureSet.from_frame(frame, "emb_", **names).content_digest == EXPECTED.content_digest
    chosen = [f"emb_{at}" for at in range(DIM)]
    assert FeatureSet.from_frame(frame, chosen, **names).content_digest == EXPECTED.content_digest
    assert FeatureSet.from_frame(frame, chosen[:3], **names).dim == 3
    with pytest.raises(InputError, match=r"emb_… .* not numbered without gaps: 0 to 11, 11 of them"):
        FeatureSet.from_frame(frame.drop(columns="emb_5"), "emb_", **names)


def test_columns_of_sides_choose_nothing() -> None:
    frame = with_lists(is_query=np.arange(N) < 40, is_gallery=True, split="validation")
    names = {"features": "emb", "pid": "person"}
    query = FeatureSet.from_frame(frame[frame.is_query], **names)
    gallery = FeatureSet.from_frame(frame[~frame.is_query], **names)
    report = evaluate(query, gallery, protocol="no_cameras", metrics=["mAP"])
    expected = evaluate(
        EXPECTED.filter(np.arange(N) < 40), EXPECTED.filter(np.arange(N) >= 40), protocol="no_cameras", metrics=["mAP"]
    )
    assert report.metrics == expected.metrics


ZERO = np.zeros(DIM)


@pytest.mark.parametrize(
    ("frame", "names", "message"),
    [
        (with_lists(), {"features": "embed"}, "unknown column of features 'embed'; did you mean 'emb'"),
        (with_lists(), {"features": "emb", "pid": "persons"}, "unknown column 'persons'; did you mean 'person'"),
        (with_lists(), {"features": "emb"}, "found no identities in the data frame; name their column with pid"),
        (with_lists(), {"features": ["emb", "cam"], "pid": "person"}, "'emb' of the data frame holds lists"),
        (with_lists(), {"features": "file", "pid": "person"}, "features .*shape"),
        (
            pd.DataFrame({"emb": [[1.0, 2.0], [3.0]], "pid": [1, 2]}),
            {"features": "emb"},
            r"column 'emb' of the data frame must hold 2 numbers in every row: row 1 holds 1",
        ),
        (pd.DataFrame({"emb": [[1.0], None], "pid": [1, 2]}), {"features": "emb"}, r"missing values \(row 1\)"),
        (pd.DataFrame({"emb": [[1.0], [2.0]], "pid": [1, None]}), {"features": "emb"}, "pid"),
        (pd.DataFrame({"emb": [[0.0], [np.nan]], "pid": [1, 2]}), {"features": "emb"}, "row"),
        (pd.DataFrame({"emb": [[1.0], [2.0]], "pid": [1, "a"]}), {"features": "emb"}, "one type each: .* column pid "),
        (pd.DataFrame([[1.0, 2, 3]], columns=["emb", "pid", "pid"]), {"features": "emb"}, "Duplicate column names"),
        (pd.Series([1, 2]), {}, "is not a table of columns of one type each"),
        (pd.DataFrame([[1.0, 2.0]]), {"features": [0, 7]}, "unknown column of features '7'"),
        (with_lists(), {"features": "emb", "pid": "person", "columns": "views"}, "unknown column 'views'"),
        ({"emb": [[1.0]], "pid": [1]}, {"features": "emb"}, "is dict; give a data frame of pandas or polars"),
    ],
)
def test_frames_that_hold_no_set(frame: Any, names: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FeatureSet.from_frame(frame, **names)


def test_rows_of_zeros_are_allowed_on_request() -> None:
    frame = pd.DataFrame({"emb": [[0.0, 0.0], [1.0, 0.0]], "pid": [1, 1]})
    assert FeatureSet.from_frame(frame, "emb", allow_zero=True).allow_zero
