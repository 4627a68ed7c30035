"""What a job computes: a pipeline file in YAML, validated whole before anything starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.validation import explain

__all__ = ["PipelineJob", "read_job"]


class PipelineJob(BaseModel):
    """An evaluation: two sources and the conventions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = ""
    query: str = Field(description="Feature store of the queries, or a file that `ingest` reads.")
    gallery: str = Field(description="Feature store of the gallery, or a file that `ingest` reads.")
    protocol: str = "market1501"
    distance: str = "cosine"
    metrics: tuple[str, ...] | None = None
    max_rank: int = Field(default=50, ge=1)
    topk: int | None = Field(default=None, ge=1)
    chunk_rows: int | None = Field(default=None, ge=1)


def read_job(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> PipelineJob:
    """Read and validate a pipeline file.

    Parameters
    ----------
    path
        The file.
    overrides
        ``KEY=VALUE`` texts, the value in YAML, that replace fields.

    Raises
    ------
    StoreNotFoundError
        If there is no such file.
    InputError
        If it is not YAML or not a job; every problem is named.
    """
    where = os.fspath(path)
    try:
        content: Any = yaml.safe_load(Path(path).read_text())
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no pipeline file {where!r}") from None
    except OSError as error:
        raise InputError(f"cannot read pipeline file {where!r}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{where} holds no job; it needs at least the keys query and gallery")
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes KEY=VALUE, found {override!r}")
        content[key] = yaml.safe_load(value)
    try:
        return PipelineJob.model_validate(content)
    except ValidationError as error:
        raise InputError(explain(f"pipeline file {where}", error, PipelineJob.model_fields)) from None
