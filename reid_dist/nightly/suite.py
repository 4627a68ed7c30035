"""Suite files in YAML: models x data sets x jobs, validated before anything starts."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.validation import Problem, file_refusal, problems_of
from reid_dist.core.yaml_text import read_yaml_file
from reid_dist.errors import InputError
from reid_dist.evaluation.pipelines import PipelineJob, contradictions
from reid_dist.nightly.gating.gate_settings import Gates

# Names are folders of the output directory, and parts of model/dataset/job.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=64)]
Labels = dict[str, str | int | float | bool]

_PLACEHOLDERS: Final = ("path", "model", "dataset")
_WITH_PLACEHOLDERS: Final = ("query", "gallery", "ground_truth", "distances", "lists", "image_root")
_NOT_OF_A_JOB: Final = frozenset({"labels", "models", "datasets"})


class Prepared(BaseModel):
    """Command that makes the features of a model or a data set, and what is expected of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prepare: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Program and arguments, run without a shell before the first job that needs it, once a night; "
        "{path}, {model} and {dataset} are replaced.",
    )
    prepare_hours: float = Field(default=12.0, gt=0, allow_inf_nan=False, description="Time limit of `prepare`.")
    expect_new: bool = Field(default=False, description="Treat unchanged features as a failure.")


class Model(Prepared):
    """Model: location of its features, and labels."""

    path: str = Field(default="", description="Replacement of {path} in the data sets.")
    labels: Labels = Field(default_factory=dict, description="Such as its backbone or commit, for display.")


class DataSet(PipelineJob, Prepared):
    """Data set: query, gallery, and fields of its jobs, such as the protocol or ground truth."""

    labels: Labels = Field(default_factory=dict)
    models: tuple[str, ...] | None = Field(
        default=None, description="Models that have features of this data set.  Default: all."
    )


class Variant(PipelineJob):
    """Way to evaluate: fields of a pipeline, which override those of the data set."""

    query: str = Field(default="", description="Default: that of the data set.")
    gallery: str = Field(default="", description="Default: that of the data set.")
    labels: Labels = Field(default_factory=dict)
    models: tuple[str, ...] | None = Field(default=None, description="Run only for these models.")
    datasets: tuple[str, ...] | None = Field(default=None, description="Only on these data sets.")


class Suite(BaseModel):
    """Suite: every model on every data set in every way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: Name = Field(description="Its name in the history; runs of one name are compared.")
    description: str = ""
    models: dict[Name, Model] = Field(min_length=1)
    datasets: dict[Name, DataSet] = Field(min_length=1)
    jobs: dict[Name, Variant] = Field(min_length=1)
    hours: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Time budget; later jobs are skipped."
    )
    gates: Gates = Field(default_factory=Gates)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields."""
        return fingerprint(self.model_dump(mode="json"))

    def planned(self) -> Iterator[PlannedJob]:
        """Yield the jobs; those of one model on one data set are consecutive, as they share stages."""
        for model, features in self.models.items():
            for dataset, sets in self.datasets.items():
                if sets.models is not None and model not in sets.models:
                    continue
                for name, variant in self.jobs.items():
                    left_out = variant.models is not None and model not in variant.models
                    if left_out or (variant.datasets is not None and dataset not in variant.datasets):
                        continue
                    placeholders = {"path": features.path, "model": model, "dataset": dataset}
                    yield PlannedJob(
                        model=model,
                        dataset=dataset,
                        job=name,
                        preparations=tuple(_preparations((features, sets), placeholders)),
                        expects_new=features.expect_new or sets.expect_new,
                        labels={
                            key: str(value) for each in (features, sets, variant) for key, value in each.labels.items()
                        },
                        pipeline=_merged(sets, variant, placeholders),
                    )


@dataclass(frozen=True, slots=True)
class Preparation:
    """Command that makes features: program and arguments, and its time limit in seconds."""

    words: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """Job of a suite: names in it, labels of model, data set and job together, and the fields of its evaluation.

    `preparations` are the commands that make its features; `expects_new` is whether features with the content of the
    last night are a failure.
    """

    model: str
    dataset: str
    job: str
    labels: Mapping[str, str]
    pipeline: PipelineJob
    preparations: tuple[Preparation, ...] = ()
    expects_new: bool = False

    @property
    def name(self) -> str:
        """``model/dataset/job``."""
        return f"{self.model}/{self.dataset}/{self.job}"


def read_suite(path: str | os.PathLike[str]) -> Suite:
    """Read and validate a suite file; the message lists every problem."""
    where = os.fspath(path)
    document = read_yaml_file(path, "suite file")
    content = document.content
    if not isinstance(content, dict):
        raise InputError(f"{where} holds no suite; it needs the keys suite, models, datasets and jobs")
    if "suite" not in content and "query" in content:
        raise InputError(f"{where} is a single job and no suite; run it with `reid-dist run {where}`")
    # ``plain:`` without a value is a job, or a model, with the defaults.
    for group in ("models", "jobs"):
        if isinstance(content.get(group), dict):
            content[group] = {name: {} if each is None else each for name, each in content[group].items()}
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        raise file_refusal(f"suite file {where}", problems_of(error, Suite), document) from None
    # Jobs are merged from valid parts only.
    if problems := [*_problems(suite)] or [*_problems_of_jobs(suite)]:
        raise file_refusal(f"suite file {where}", problems, document)
    return suite


def _problems(suite: Suite) -> Iterator[Problem]:
    groups: dict[str, Mapping[str, object]] = {"models": suite.models, "datasets": suite.datasets, "jobs": suite.jobs}
    for owner, each in (((group, name), each) for group, named in groups.items() for name, each in named.items()):
        if isinstance(each, Prepared):
            for position, word in enumerate(each.prepare or ()):
                yield from (Problem((*owner, "prepare", position), text) for text in _wrong_placeholders(word))
        if not isinstance(each, PipelineJob):
            continue
        for group in ("models", "datasets"):
            for position, name in enumerate(getattr(each, group, None) or ()):
                if name not in groups[group]:
                    yield Problem((*owner, group, position), f"there is no {group[:-1]} {name!r}")
        for field in _WITH_PLACEHOLDERS:
            yield from (Problem((*owner, field), text) for text in _wrong_placeholders(getattr(each, field)))
        if each.sweep is not None:
            yield Problem((*owner, "sweep"), "a suite runs single jobs; put the best point into one")


def _problems_of_jobs(suite: Suite) -> Iterator[Problem]:
    jobs = list(suite.planned())
    if not jobs:
        yield Problem(("jobs",), "no job is left: models and datasets leave out every one")
    for planned in jobs:
        for path, text in contradictions(planned.pipeline):
            yield Problem(("jobs", planned.job, *path), f"on data set {planned.dataset}: {text}")


def _wrong_placeholders(text: str | None) -> Iterator[str]:
    """Yield problems with the placeholders in a text, such as ``{modle}``."""
    try:
        found = list(string.Formatter().parse(text or ""))
    except ValueError as error:
        yield f"{error}, found {text!r}; write {{{{ for a brace"
        return
    for _, place, form, conversion in found:
        # Bare names only: a format string can access attributes.
        if place is not None and (place not in _PLACEHOLDERS or form or conversion):
            yield f"unknown placeholder {{{place}}} in {text!r}; known: {{path}}, {{model}}, {{dataset}}"


def _preparations(makers: Sequence[Prepared], placeholders: Mapping[str, str]) -> Iterator[Preparation]:
    for maker in makers:
        if maker.prepare is not None:
            words = tuple(_filled(word, placeholders) for word in maker.prepare)
            yield Preparation(words, maker.prepare_hours * 3600)


def _filled(text: str, placeholders: Mapping[str, str]) -> str:
    return string.Formatter().vformat(text, (), placeholders)


def _merged(sets: DataSet, variant: Variant, placeholders: Mapping[str, str]) -> PipelineJob:
    fields = {
        name: getattr(each, name)
        for each in (sets, variant)
        for name in PipelineJob.model_fields
        if name in each.model_fields_set - _NOT_OF_A_JOB and not (each is variant and getattr(each, name) == "")
    }
    for name in _WITH_PLACEHOLDERS:
        if isinstance(fields.get(name), str):
            fields[name] = _filled(fields[name], placeholders)
    return PipelineJob.model_validate(fields)
