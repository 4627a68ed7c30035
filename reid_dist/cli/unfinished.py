"""What an output directory was begun for, so that nobody takes up the run of another job by mistake.

A finished run has its report to tell; until then a small file does, with a short digest of each thing that the answer
depends on.  Parts in a workspace are named after all that they depend on and could never be mistaken, but whoever
resumes with other words than he began with should hear of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reid_dist.errors import DamagedStoreError, InputError, StoreError
from reid_dist.reports.documents import plain
from reid_dist.stores import Workspace

__all__ = ["differing", "unfinished"]

_NAME = "unfinished.json"


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Names of what is not the same; as JSON, for 1 and 1.0 are different sizes of a gallery."""
    return [name for name in wanted if _as_json(wanted[name]) != _as_json(found.get(name))]


def _as_json(value: Any) -> str:
    return json.dumps(plain(value))


@contextlib.contextmanager
def unfinished(output: Path | None, workspace: Path | str | None, job: Mapping[str, Any]) -> Iterator[None]:
    """Keep what a run is for in its output directory until it is done; a run that leaves nothing leaves this neither.

    Parameters
    ----------
    output
        Where its report goes; None for nowhere.
    workspace
        Where its parts are.  One that lies elsewhere is shared by many jobs, and what a run is for is not kept then.
    job
        All that its answer depends on, by name.

    Raises
    ------
    InputError
        If another job was begun there and not finished.
    StoreError
        If the file cannot be read or written.
    """
    if output is None or workspace is None or output not in Path(workspace).parents:
        yield
        return
    mark = output / _NAME
    _refuse_other(mark, job)
    _write(mark, job)
    try:
        yield
    except BaseException:
        # Whatever else is wrong by now, the error on its way is the one to tell.
        with contextlib.suppress(StoreError, OSError):
            if not Workspace.at(workspace).holds_parts():
                mark.unlink(missing_ok=True)
        raise
    mark.unlink(missing_ok=True)


def _refuse_other(mark: Path, job: Mapping[str, Any]) -> None:
    try:
        found = json.loads(mark.read_text())
        others = [name for name, digest in _digests(job).items() if found.get(name) != digest]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read {mark}: {error.strerror}; choose another --output") from None
    except (ValueError, AttributeError):
        raise DamagedStoreError(f"{mark} is damaged; delete it, or choose another --output") from None
    if others:
        raise InputError(
            f"{mark.parent} holds an unfinished run of another job ({', '.join(others)} differ); repeat the "
            "command of that run with --resume, or choose another --output"
        )


def _write(mark: Path, job: Mapping[str, Any]) -> None:
    draft = mark.with_name(f".{mark.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        draft.write_text(json.dumps(_digests(job), separators=(",", ":")))
        draft.replace(mark)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StoreError(f"cannot write {mark}: {error.strerror}; make room or choose another --output") from None


def _digests(job: Mapping[str, Any]) -> dict[str, str]:
    """Short, for the file has to fit where almost nothing does; they need not withstand anybody."""
    return {name: hashlib.sha256(_as_json(value).encode()).hexdigest()[:8] for name, value in job.items()}
