"""Pipeline files: jobs in YAML, validated whole before anything starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from types import GenericAlias, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    StrictFloat,
    StrictInt,
    Tag,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from reid_dist.core.parameters import Form, Parameter
from reid_dist.core.specs import parse_spec
from reid_dist.core.validation import Problem, file_refusal, problems_of
from reid_dist.core.yaml_text import parse_yaml, read_yaml_file
from reid_dist.engine.distances import DISTANCES
from reid_dist.errors import InputError, refuse
from reid_dist.evaluation.benchmarks import BENCHMARKS, Benchmark, with_benchmark
from reid_dist.evaluation.options import (
    JOB_OPTIONS,
    LEFT_OUT,
    OPTIONS,
    SPLIT_OPTIONS,
    SPLITS,
    SWEEP,
    EvaluationOptions,
    Option,
)
from reid_dist.evaluation.sides import Sides
from reid_dist.metrics.metric import metric_names, parse_metric
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import PROTOCOLS, Protocol, compose_protocol
from reid_dist.stages.expansion.expansion_steps import EXPANSIONS, make_step, parse_expand
from reid_dist.stages.method_parameters import SWEPT_PARAMETERS
from reid_dist.stages.reranking.rerankers import parse_rerank


def _strict(kind: Any) -> Any:
    """A type in which whole numbers are neither texts nor booleans."""
    parts = tuple(each if each is ... else _strict(each) for each in get_args(kind))
    if get_origin(kind) is tuple:
        return GenericAlias(tuple, parts)
    if get_origin(kind) is UnionType:
        return reduce(or_, parts)
    return StrictInt if kind is int else kind


def _components() -> dict[str, Any]:
    """Fields of `Protocol` but the name as those of a model, each optional."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(Protocol, include_extras=True).items():
        (declared,) = getattr(hint, "__metadata__", None) or (Parameter(),)
        kind = hint.__origin__ if hasattr(hint, "__metadata__") else hint
        field = Field(default=None, description=declared.help or None)
        found[name] = (_strict(kind) | None, field)
    return {name: each for name, each in found.items() if name != "name"}


class _Components(BaseModel):
    """A protocol of one's own; see `reid_dist.relevance.protocols.Protocol`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    base: str | None = Field(default=None, description="A registered protocol to start from.")

    def compose(self) -> Protocol:
        """Make the protocol; components that do not fit are refused, and None is what it is for a `Protocol`."""
        # In the order of the fields, as the summary names them.
        given = [name for name in type(self).model_fields if name in self.model_fields_set]
        values = {name: getattr(self, name) for name in given if name not in ("name", "base")}
        optional = [name for name, kind in get_type_hints(Protocol).items() if NoneType in get_args(kind)]
        components = {name: value for name, value in values.items() if value is not None or name in optional}
        return compose_protocol(self.name, base=self.base, **components)


if TYPE_CHECKING:

    class ProtocolComponents(_Components):
        """Components of a protocol."""

        def __getattr__(self, name: str) -> Any: ...

else:
    ProtocolComponents = create_model(
        "ProtocolComponents", __base__=_Components, __doc__=_Components.__doc__, **_components()
    )


def _kind_of_protocol(given: object) -> str:
    """Kind of a protocol, so that problems are those of this kind alone."""
    return "components" if isinstance(given, dict | ProtocolComponents) else "text"


def _look_up_protocol(given: str | ProtocolComponents) -> object:
    return PROTOCOLS.get(given) if isinstance(given, str) else given.compose()


def _look_up_expansion(spec: str) -> None:
    """Read an expansion; a sweep may give parameters of its last step."""
    *before, last = parse_spec("expansion", spec)
    for step in before:
        make_step(step.name, step.values)
    make_step(last.name, {"k": 1, **last.values} if "k" in EXPANSIONS.get(last.name).parameters else last.values)


def _look_up_metrics(names: Sequence[str]) -> None:
    """Read every metric; one error names all that are wrong."""
    problems = []
    for name in metric_names(names):
        try:
            parse_metric(name)
        except InputError as error:
            problems.append(str(error))
    refuse(problems, many="metrics")


_LOOK_UPS: Mapping[str, Callable[[Any], object]] = {
    "protocol": _look_up_protocol,
    "distance": DISTANCES.get,
    "benchmark": BENCHMARKS.get,
    "expand": _look_up_expansion,
    "rerank": parse_rerank,
    "collapse": Collapse.parse,
    "metrics": _look_up_metrics,
}
"""Names and specs among the options: they are looked up when a file is read."""


def _looked_up(option: str) -> AfterValidator:
    """Validator that leaves a value as it is."""

    def look_up(value: Any) -> Any:
        if value is not None:
            _LOOK_UPS[option](value)
        return value

    return AfterValidator(look_up)


_PROTOCOL = Annotated[str, Tag("text")] | Annotated[ProtocolComponents, Tag("components")]

_NUMBER = {"anyOf": [{"type": "integer"}, {"type": "number"}]}
_SCHEMAS: dict[Form, dict[str, Any]] = {
    "flag": {"type": "boolean"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "text": {"type": "string"},
    "names": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": _NUMBER},
    "rows": {"type": "array", "items": {"type": "integer"}},
}


def _in_files(option: Option) -> Any:
    """Type of an option in a pipeline file: its own check, and its JSON Schema."""
    if option.name == "protocol":
        return Annotated[_PROTOCOL, Discriminator(_kind_of_protocol), _looked_up(option.name)]
    # What is an object in Python has a name or a path in a file.
    in_file = replace(option, forms=("text",)) if option.form == "any" else option
    words = ("exclusiveMinimum", "exclusiveMaximum") if option.exclusive else ("minimum", "maximum")
    limits = dict(zip(words, option.limits or (), strict=False))
    choices = {"choice": {"enum": list(option.choices), "type": "string"}}
    found = [
        {**(choices | _SCHEMAS)[form], **(limits if form in ("whole", "number") else {})} for form in in_file.forms
    ]
    found += [{"type": "null"}] if option.optional else []
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    kind = Annotated[Any, PlainValidator(in_file.check), WithJsonSchema(schema, mode="validation")]
    return Annotated[kind, _looked_up(option.name)] if option.name in _LOOK_UPS else kind


# In YAML true is no number, and "2" a text.
_Number = StrictInt | StrictFloat
_Swept = str | bool | _Number | tuple[str | bool | _Number, ...]

if TYPE_CHECKING:

    class _Fields(BaseModel):
        """Fields that are made of declarations."""

        def __getattr__(self, name: str) -> Any: ...

    class OptionFields(_Fields):
        """One field for every option of a job."""

    class SplitFields(_Fields):
        """Galleries of an evaluation over several splits."""

    class SweptParameters(_Fields):
        """Values of the swept parameters."""

else:

    def _fields(name: str, doc: str, made: Mapping[str, Any]) -> type[BaseModel]:
        return create_model(name, __config__=ConfigDict(extra="forbid", frozen=True), __doc__=doc, **made)

    def _of_options(options: Mapping[str, Option]) -> dict[str, Any]:
        return {
            each.name: (_in_files(each), Field(default=each.default, description=each.doc or each.help))
            for each in options.values()
        }

    OptionFields = _fields("OptionFields", "One field for every option of a job.", _of_options(JOB_OPTIONS))
    SplitFields = _fields(
        "SplitFields",
        "Galleries of an evaluation over several splits, drawn at random or listed.",
        _of_options(SPLIT_OPTIONS),
    )
    SweptParameters = _fields(
        "SweptParameters",
        "Values of the swept parameters: one, a list, or a text such as ``0:10`` or ``1,6,10:30:10``.",
        {name: (_Swept | None, Field(default=None, description=each.help)) for name, each in SWEPT_PARAMETERS.items()},
    )


class PipelineJob(OptionFields):
    """An evaluation: two sources and the options of `JobOptions`."""

    description: str = ""
    query: str = Field(description="Feature store of the queries, or a file that `ingest` reads.")
    gallery: str = Field(description="Feature store of the gallery, or a file that `ingest` reads.")
    sweep: SweptParameters | None = Field(
        default=None, description="Evaluate at every point of a grid of parameters of expand, or of rerank."
    )
    splits: SplitFields | None = Field(
        default=None, description="Evaluate on several galleries, and report means with their spread."
    )

    def options(self) -> EvaluationOptions:
        """Options of `evaluate`, with those that the benchmark prescribes."""
        options = {**{name: getattr(self, name) for name in OPTIONS}, "protocol": self.rules}
        if self.benchmark is not None:
            _, resolved = with_benchmark(self.benchmark, {**self._given(), **self._drawn()})
            options |= {name: resolved[name] for name in OPTIONS if name in resolved}
        return cast("EvaluationOptions", options)

    @property
    def sides(self) -> Sides:
        """Sources of query and gallery, with those of models that are fused, and what is left out."""
        return Sides(
            self.query,
            self.gallery,
            self.fuse or (),
            exclude=self.exclude or (),
            drop_duplicates=self.drop_duplicates,
            left_out=self.left_out,
        )

    @property
    def published(self) -> Benchmark | None:
        """The benchmark; None for none."""
        return None if self.benchmark is None else BENCHMARKS.get(self.benchmark)

    @property
    def has_splits(self) -> bool:
        """Whether several galleries are evaluated."""
        return self.splits is not None or (self.published is not None and self.published.draw is not None)

    def split_options(self) -> dict[str, Any]:
        """Options of `evaluate_splits`; all options that it does not compute are refused in one message."""
        refused = [name for name, option in JOB_OPTIONS.items() if SPLITS in option.refused_by]
        found = [
            name for name in refused if name in self.model_fields_set and JOB_OPTIONS[name].is_set(getattr(self, name))
        ]
        if found or self.sweep is not None:
            raise InputError(
                f"{', '.join(found or ['sweep'])}: these are of one gallery, and every split has its own; leave them "
                "out, or evaluate without splits"
            )
        given = {name: value for name, value in self._given().items() if name not in refused}
        published = {name: getattr(self, name) for name in ("benchmark", "other_codes")}
        return {**given, **published, **self._drawn()}

    def _given(self) -> dict[str, Any]:
        """Options of `evaluate` that the job states."""
        given = {name: getattr(self, name) for name in OPTIONS if name in self.model_fields_set}
        return {**given, "protocol": self.rules} if "protocol" in given else given

    def _drawn(self) -> dict[str, Any]:
        """Options of splits that the job states."""
        return {} if self.splits is None else self.splits.model_dump(exclude_unset=True)

    def sweep_options(self) -> dict[str, Any]:
        """Options of `sweep_parameters`; all options that a sweep does not compute are refused in one message."""
        # Intervals are left out silently: every other job has them without a word.
        refused = [name for name, option in JOB_OPTIONS.items() if SWEEP in option.refused_by and name != "confidence"]
        found = [name for name in refused if JOB_OPTIONS[name].is_set(getattr(self, name))]
        if found:
            raise InputError(
                f"a sweep gives metrics at each of its points and nothing else; leave out {', '.join(found)}, or run "
                "the best point as a job of its own"
            )
        options: dict[str, Any] = {
            name: value for name, value in self.options().items() if SWEEP not in OPTIONS[name].refused_by
        }
        inputs = {name: value for name in ("fuse", *LEFT_OUT) if (value := getattr(self, name))}
        return {**options, **inputs, **({} if self.sweep is None else self.sweep.model_dump(exclude_none=True))}

    @property
    def rules(self) -> str | Protocol:
        """The protocol: its name, or one composed of the components that the file lists."""
        protocol: str | ProtocolComponents = self.protocol
        return protocol if isinstance(protocol, str) else protocol.compose()


def read_job(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> PipelineJob:
    """Read and validate a pipeline file; one message names every problem.

    `overrides` are ``KEY=VALUE`` texts, the value in YAML, that replace fields; ``protocol.base=VALUE`` a field of a
    mapping.
    """
    where = os.fspath(path)
    document = read_yaml_file(path, "pipeline file")
    content = document.content
    if not isinstance(content, dict):
        raise InputError(f"{where} holds no job; it needs at least the keys query and gallery")
    if "suite" in content:
        raise InputError(f"{where} is a suite of many jobs; run it with `reid-dist nightly {where} --history FILE`")
    document = replace(document, replaced=tuple(_override(content, override) for override in overrides))
    try:
        job = PipelineJob.model_validate(content)
        problems = [*contradictions(job)]
    except ValidationError as error:
        problems = problems_of(error, PipelineJob)
    if problems:
        raise file_refusal(f"pipeline file {where}", problems, document)
    return job


def contradictions(job: PipelineJob) -> Iterator[Problem]:
    """Fields of a job that contradict each other or its benchmark; each alone is right."""
    expand = None if job.sweep is not None else job.expand
    for field, contradicts in (("benchmark", job.options), ("expand", partial(parse_expand, expand or ()))):
        try:
            contradicts()
        except InputError as error:
            yield from (Problem((field,), text) for text in error.faults)


def _override(content: dict[str, Any], override: str) -> tuple[str, ...]:
    """Replace a field, or with a dot one of a mapping, ``protocol.base=allshots``; return its keys."""
    key, equals, value = override.partition("=")
    *path, last = key.split(".")
    if not equals or not last or not all(path):
        raise InputError(f"--set takes KEY=VALUE, found {override!r}")
    parsed = parse_yaml(value, f"--set {key}: the value").content
    for step in path:
        inner = content.setdefault(step, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {key}: {step} is {inner!r} and has no fields; set {step} itself")
        content = inner
    content[last] = parsed
    return (*path, last)
