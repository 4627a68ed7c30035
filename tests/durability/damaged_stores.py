"""Stores that are damaged at a chosen moment of a run, jobs over them, and what the jobs compute.

A run reads chunks by three methods of `LocalFolder`.  `Disk` counts these reads and does its damage before one of them,
or hands out other bytes once, while the file stays whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import FeatureSet, k_reciprocal_graph, nearest, reranked_distances
from reid_dist.cli.group import run_command
from reid_dist.errors import ReidDistError
from reid_dist.stores.folders import LocalFolder

N_QUERY, N_GALLERY, DIM, CHUNK_ROWS = 40, 240, 16, 20
_ROW_BYTES = 4 * DIM

# What no number depends on, or what differs between runs of the same numbers.
_PASSING = {"timing", "environment", "seconds", "document_digest", "uri", "labels_uri", "name", "run"}


class Failed(Exception):
    """The one line of a run that ended with an error."""


def save_sets(folder: Path) -> None:
    """Write ``q.zarr`` and ``g.zarr``, those of another model in ``other``, and a list of pairs."""
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((2, 22, DIM))
    (folder / "other").mkdir()
    for names, n in ((("q", "other/query"), N_QUERY), (("g", "other/gallery"), N_GALLERY)):
        # The gallery lacks two identities.
        pids, camids = rng.integers(0, 22 if n == N_QUERY else 20, n), rng.integers(0, 4, n)
        for name, centre in zip(names, centres, strict=True):
            features = (centre[pids] + 1.4 * rng.standard_normal((n, DIM))).astype(np.float32)
            found = FeatureSet.from_arrays(features, pids, camids, np.arange(n) + 1000 * (n == N_GALLERY))
            found.save(folder / f"{name}.zarr", chunk_rows=CHUNK_ROWS)
    pairs = "".join(f"{i},{(7 * i) % N_GALLERY},{i % 2}\n" for i in range(N_QUERY))
    (folder / "pairs.csv").write_text(f"left,right,same\n{pairs}")


# ---- damage ----------------------------------------------------------------------------------------------------------

Damage = Callable[[Path, np.random.Generator], None]


def _chunks(store: Path) -> list[Path]:
    return sorted((store / "features" / "c").glob("*/0"))


def _one(paths: Sequence[Path], rng: np.random.Generator) -> Path:
    return paths[rng.integers(len(paths))]


def _overwrite(path: Path, content: bytes) -> None:
    """Change a file in place: one that is emptied for a moment, as by `write_bytes`, ends a process that maps it."""
    if path.exists() and len(content) == path.stat().st_size:
        with path.open("r+b") as file:
            file.write(content)
        return
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _flip(path: Path, rng: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    _overwrite(path, bytes(content))


def flip_bit(store: Path, rng: np.random.Generator) -> None:
    """Flip one bit of a chunk."""
    _flip(_one(_chunks(store), rng), rng)


def negate_row(store: Path, rng: np.random.Generator) -> None:
    """Change the signs of a row."""
    path, row = _one(_chunks(store), rng), rng.integers(CHUNK_ROWS)
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[row * _ROW_BYTES : (row + 1) * _ROW_BYTES].view(np.float32)[:] *= -1
    _overwrite(path, content.tobytes())


def swap_rows(store: Path, rng: np.random.Generator) -> None:
    """Swap two rows of a chunk."""
    path = _one(_chunks(store), rng)
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    rows = content[: CHUNK_ROWS * _ROW_BYTES].reshape(CHUNK_ROWS, -1)
    one, other = rng.choice(CHUNK_ROWS, 2, replace=False)
    rows[[one, other]] = rows[[other, one]]
    _overwrite(path, content.tobytes())


def swap_chunks(store: Path, rng: np.random.Generator) -> None:
    """Swap two chunks, each with its checksum."""
    chunks = _chunks(store)
    one, other = (chunks[place] for place in rng.choice(len(chunks), 2, replace=False))
    held = one.read_bytes()
    _overwrite(one, other.read_bytes())
    _overwrite(other, held)


def truncate(store: Path, rng: np.random.Generator) -> None:
    """Cut a chunk; another file takes its place, for a mapped one that shrinks ends any process."""
    path = _one(_chunks(store), rng)
    content = path.read_bytes()[: int(rng.integers(CHUNK_ROWS * _ROW_BYTES))]
    path.unlink()
    _overwrite(path, content)


def remove_chunk(store: Path, rng: np.random.Generator) -> None:
    """Remove a chunk."""
    _one(_chunks(store), rng).unlink()


def flip_label(store: Path, rng: np.random.Generator) -> None:
    """Flip one bit of the labels."""
    _flip(_one([*store.glob("pids/c/*"), *store.glob("camids/c/*")], rng), rng)


DAMAGES: tuple[Damage, ...] = (flip_bit, negate_row, swap_rows, swap_chunks, truncate, remove_chunk, flip_label)


@dataclass
class Disk:
    """Counts reads of chunks; `strike` is called before read number `moment`, and one read may bring other bytes.

    Attributes
    ----------
    reads
        Reads so far.
    struck
        Whether it came to that.
    """

    moment: int | None = None
    strike: Callable[[], None] | None = None
    transient: bool = False
    reads: int = 0
    struck: bool = False

    def _count(self, name: str) -> bool:
        """Count a read of a chunk, and strike; whether this read brings other bytes."""
        if not name.startswith("features/c/"):
            return False
        now = self.reads == self.moment
        self.reads += 1
        self.struck |= now
        if now and self.strike is not None:
            self.strike()
        return now and self.transient

    @contextlib.contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
        """Take the place of the methods that read."""
        gather, opened = LocalFolder.gather, LocalFolder.open

        def gathering(folder: LocalFolder, name: str, *arguments: Any) -> Any:
            spoilt = self._count(name)
            found = gather(folder, name, *arguments)
            if spoilt and found is not None:
                found[len(found) // 2] ^= 64
            return found

        def opening(folder: LocalFolder, name: str) -> Any:
            spoilt = self._count(name)
            file = opened(folder, name)
            if not spoilt:
                return file
            with file:
                content = bytearray(file.read())
            content[len(content) // 2] ^= 64
            return io.BytesIO(content)

        with monkeypatch.context() as patch:
            patch.setattr(LocalFolder, "gather", gathering)
            patch.setattr(LocalFolder, "open", opening)
            yield self


# ---- jobs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Something that reads stores and ends with numbers.

    `words` are those of a command, with ``{name}`` for the folders of a run; `call` is a function of the sets and the
    workspace.  `resumes` says whether it takes ``--resume`` on its output.
    """

    name: str
    words: tuple[str, ...] = ()
    call: Callable[[FeatureSet, FeatureSet, Path], bytes] | None = None
    resumes: bool = False
    reads: tuple[str, ...] = ("q.zarr", "g.zarr")
    makes: str = ""

    def run(self, folder: Path, run: str, *, resume: bool = False) -> str:
        """Digest of everything that the job computes; `Failed` with the line of an error."""
        workspace = folder / "workspace"
        if self.call is not None:
            try:
                sets = FeatureSet.open(folder / "q.zarr"), FeatureSet.open(folder / "g.zarr")
                return hashlib.sha256(self.call(*sets, workspace)).hexdigest()
            except ReidDistError as error:
                raise Failed(str(error)) from error
        places = {"folder": folder, "workspace": workspace, "out": folder / run}
        words = [word.format(**places) for word in self.words]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command([*words, *(["--resume"] if resume and self.resumes else [])])
        text = err.getvalue()
        assert "Traceback" not in text, text
        if code:
            assert code == 2, (code, text)
            raise Failed(text.strip().splitlines()[-1])
        if self.makes:
            made = FeatureSet.open(folder / run)
            shutil.rmtree(folder / run)
            return made.content_digest
        return hashlib.sha256(json.dumps(_lasting(json.loads(out.getvalue()))).encode()).hexdigest()


def _lasting(document: Any) -> Any:
    """What a document says of numbers."""
    if isinstance(document, dict):
        return {name: _lasting(value) for name, value in sorted(document.items()) if name not in _PASSING}
    return [_lasting(each) for each in document] if isinstance(document, list) else document


def _evaluation(*options: str, query: str = "q.zarr") -> Job:
    words = ("evaluate", f"{{folder}}/{query}", "{folder}/g.zarr", "--json", "--chunk-rows", "16")
    return Job(" ".join(options), (*words, "--workspace", "{workspace}", "--output", "{out}", *options), resumes=True)


def _nearest(query: FeatureSet, gallery: FeatureSet, workspace: Path) -> bytes:
    lists = [nearest(query, gallery, k=7, workspace=workspace), nearest(gallery, gallery, k=5, workspace=workspace)]
    return b"".join(each.index.tobytes() + each.distance.tobytes() for each in lists)


def _graph(query: FeatureSet, gallery: FeatureSet, workspace: Path) -> bytes:
    graph = k_reciprocal_graph(gallery, rerank="k_reciprocal(k1=6,k2=3)", workspace=workspace)
    return graph.indices.tobytes() + graph.weights.tobytes()


def _reranked(query: FeatureSet, gallery: FeatureSet, workspace: Path) -> bytes:
    return reranked_distances(query, gallery, rerank="k_reciprocal(k1=7,k2=2)", workspace=workspace).tobytes()


_PLACES = "--workspace", "{workspace}"
_FUSED = "q.zarr", "g.zarr", "other/query.zarr", "other/gallery.zarr"
_RERANKINGS = (
    ("k_reciprocal(k1=8,k2=3)", "k_reciprocal(k1=6,k2=3)"),
    ("k_reciprocal(k1=8,k2=3)", "k_reciprocal(k1=8,k2=3,variant=zhong_d4)"),
    ("k_reciprocal(k1=8,k2=3,variant=faiss_k1)", "k_reciprocal(k1=6,k2=2,variant=paper)"),
    ("k_reciprocal(k1=8,k2=3,mode=inductive)", "k_reciprocal(k1=6,k2=1,mode=inductive)"),
    ("gnn(k1=12,k2=4)", "gnn(k1=10,k2=4)"),
    ("ecn(t=3,q=8)", "ecn(t=3,q=6)"),
    ("ecn(t=3,q=8)", "ecn(t=3,q=8,method=origdist)"),
    ("top(k_reciprocal(k1=8,k2=3),m=60)", "top(k_reciprocal(k1=8,k2=3),m=50)"),
    ("top(gnn(k1=8,k2=3),m=60)", "top(gnn(k1=6,k2=3),m=60)"),
)
_EXPANSIONS = (
    ("aqe(k=8)", "aqe(k=3)"),
    ("alpha_qe(k=8)", "alpha_qe(k=5,alpha=2)"),
    ("dba(k=8)", "dba(k=5)"),
    ("dba(k=4)+alpha_qe(k=4,alpha=3)", "dba(k=4)+aqe(k=2)"),
    ("fastreid(k=5,alpha=3,times=2)", "fastreid(k=4,alpha=3,times=1)"),
    ("camera_norm", "camera_norm(ridge=3)"),
    ("whiten(dim=8)", "whiten(dim=6)"),
    ("l2+whiten(dim=8)", "float16"),
    ("gcr(k1=15)", "gcr(k1=12)"),
    ("gcr(k1=15)", "gcr(k1=15,beta1=0.3)"),
)
_PLAIN = (
    ("--topk", "5", "--ties"),
    ("--protocol", "cuhk03"),
    ("--roc", "--metric", "mAP,TAR@FAR=0.01"),
    ("--metric", "mAP,TAR@FAR=0.01,EER"),
    ("--metric", "DIR@FAR=0.1,CMC@1"),
    ("--metric", "CMC@1,CMC@5"),
    ("--collapse", "CMC:pid"),
    ("--breakdown", "camera_pair", "--breakdown", "gallery_size"),
    ("--distance", "euclidean", "--protocol", "no_cameras"),
    ("--metric", "BAKS_votes@5,GAP"),
)

# Two jobs at a time, the second with other parameters: they share a workspace.
JOBS: tuple[tuple[Job, Job], ...] = (
    *((_evaluation("--rerank", one), _evaluation("--rerank", other)) for one, other in _RERANKINGS),
    *((_evaluation("--expand", one), _evaluation("--expand", other)) for one, other in _EXPANSIONS),
    *((_evaluation(*one), _evaluation(*other)) for one, other in zip(_PLAIN, (*_PLAIN[1:], _PLAIN[0]), strict=True)),
    (
        _evaluation("--expand", "dba(k=3)", "--rerank", "k_reciprocal(k1=6,k2=2)"),
        _evaluation("--expand", "dba(k=3)", "--rerank", "ecn(t=3,q=4)"),
    ),
    (
        replace(_evaluation("--fuse", "{folder}/other:0.4"), reads=_FUSED),
        replace(_evaluation("--fuse", "{folder}/other:0.3", "--rerank", "gnn(k1=8,k2=3)"), reads=_FUSED),
    ),
    (
        Job("nearest", call=_nearest),
        Job("graph", call=_graph, reads=("g.zarr",)),
    ),
    (
        Job("reranked", call=_reranked),
        _evaluation("--rerank", "k_reciprocal(k1=7,k2=3)"),
    ),
    (
        Job(
            "sweep of an expansion",
            ("sweep", "{folder}/q.zarr", "{folder}/g.zarr", "--expand", "aqe", "--k", "0:3", "--json", *_PLACES),
        ),
        Job(
            "sweep of a re-ranking",
            (
                *("sweep", "{folder}/q.zarr", "{folder}/g.zarr", "--rerank", "k_reciprocal", "--k1", "5,7"),
                *("--k2", "1,3", "--json", "--output", "{out}", *_PLACES),
            ),
            resumes=True,
        ),
    ),
    (
        Job(
            "splits",
            (
                *("splits", "{folder}/q.zarr", "{folder}/g.zarr", "--repeats", "3", "--per-camera", "--json"),
                *("--output", "{out}", *_PLACES),
            ),
            resumes=True,
        ),
        Job("conventions", ("conventions", "{folder}/q.zarr", "{folder}/g.zarr", "--json", *_PLACES)),
    ),
    (
        Job(
            "pool",
            ("pool", "{folder}/g.zarr", "--by", "pid_camid", "--output", "{out}", *_PLACES),
            reads=("g.zarr",),
            makes="store",
        ),
        Job(
            "ingest",
            ("ingest", "{folder}/g.zarr", "--output", "{out}", "--chunk-rows", "30"),
            reads=("g.zarr",),
            makes="store",
        ),
    ),
    (
        Job(
            "pairs",
            ("pairs", "{folder}/q.zarr", "{folder}/g.zarr", "--pairs", "{folder}/pairs.csv", "--json"),
        ),
        Job("thresholds", ("thresholds", "{folder}/finished", "--json")),
    ),
)


@dataclass
class Sets:
    """Stores in a folder, and copies to put back."""

    folder: Path
    kept: Path = field(init=False)

    def __post_init__(self) -> None:
        self.kept = self.folder.with_name(f"{self.folder.name}-kept")
        self.folder.mkdir()
        save_sets(self.folder)
        finished = _evaluation()
        finished.run(self.folder, "finished")
        shutil.rmtree(self.folder / "workspace", ignore_errors=True)
        shutil.copytree(self.folder, self.kept)

    def repair(self, name: str, *, in_place: bool) -> None:
        """Put a store back: its files, or the whole folder."""
        if not in_place:
            shutil.rmtree(self.folder / name)
            shutil.copytree(self.kept / name, self.folder / name)
            return
        for path in (self.kept / name).rglob("*"):
            if path.is_file():
                _overwrite(self.folder / name / path.relative_to(self.kept / name), path.read_bytes())

    def forget(self) -> None:
        """Remove what runs left behind."""
        for path in self.folder.iterdir():
            if path.name not in {each.name for each in self.kept.iterdir()}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
