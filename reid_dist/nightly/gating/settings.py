"""Settings of the gates: which metrics, how small a change matters, how often a false alarm may occur."""

from __future__ import annotations

import math
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from reid_dist.metrics.definitions import parse_metric
from reid_dist.reports.verdicts import SMALLEST_EFFECT

__all__ = ["AccuracyGate", "Gates", "RatioGate", "SpeedGate", "TrendGate"]

# How many resamples must lie beyond an end of an interval for that end to be known.
_LEAST_BEYOND = 5


class _MetricGate(BaseModel):
    """What the gates of metrics share.

    The smallest change that matters is half a point: two trainings of one model differ by about as much, and papers
    of this field print gains of that size.  With 3,368 queries of 750 identities noise asks for more anyway, unless the
    two models err on the same queries.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    smallest_share: ClassVar[float] = 1.0
    """Part of `false_alarm` that the test with the smallest rate has."""

    metrics: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Gated metrics; without it the protocol's own average precision and its CMC at rank 1.",
    )
    minimum_effect: float = Field(
        default=SMALLEST_EFFECT,
        ge=0,
        lt=1,
        description="Smallest change that matters, as a share; 0.005 is half a point.",
    )
    false_alarm: float = Field(gt=0, lt=0.5)
    n_resamples: int = Field(default=10_000, ge=1, description="Of the bootstrap and of the permutations.")
    seed: int = Field(default=0, ge=0, description="Of the resamples.")

    @field_validator("metrics")
    @classmethod
    def _has_values_per_query(cls, metrics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in metrics or ():
            # Before anything runs: a name that nobody knows would be found missing every night.
            if not parse_metric(name).per_query_name:
                raise ValueError(
                    f"{name} is no mean of values per query, so there is nothing to resample; leave it out"
                )
        return None if metrics is None else tuple(dict.fromkeys(parse_metric(name).name for name in metrics))

    @model_validator(mode="after")
    def _draws_enough(self) -> Self:
        n_metrics = 2 if self.metrics is None else len(self.metrics)
        # Rounded before it is rounded up: 20 / 0.005 need not be 4000 to the last bit.
        needed = math.ceil(round(_LEAST_BEYOND * n_metrics / (self.smallest_share * self.false_alarm), 6))
        if self.n_resamples < needed:
            raise ValueError(
                f"n_resamples must be at least {needed} for {n_metrics} metrics at a rate of {self.false_alarm:g}, so "
                f"that {_LEAST_BEYOND} lie beyond the end of an interval; it is {self.n_resamples}"
            )
        return self


class AccuracyGate(_MetricGate):
    """When the accuracy of an entry is worse than that of the runs that it is held against.

    The rates of all gates add up to less than the one night in a hundred that a job may have; the rest is room for what
    a bootstrap and a spread of few runs miss.
    """

    last_good_share: ClassVar[float] = 0.5
    reference_share: ClassVar[float] = 0.25
    best_share: ClassVar[float] = 0.25
    """Parts of `false_alarm` by what an entry is held against: they add up to 1, so their tests do to the rate."""

    smallest_share: ClassVar[float] = 0.25

    false_alarm: float = Field(
        default=0.004,
        gt=0,
        lt=0.5,
        description="How often a job that did not change may be called worse, over all its gated metrics and all runs "
        "that it is held against.",
    )
    nights: int = Field(default=30, ge=1, description="How many of the last nights the best one is chosen from.")


class TrendGate(_MetricGate):
    """When the accuracy of a job falls over many nights, each step of which may be too small to see."""

    false_alarm: float = Field(
        default=0.001,
        gt=0,
        lt=0.5,
        description="How often a job that did not change may be said to fall, over all its gated metrics.",
    )
    nights: int = Field(default=14, ge=3, description="How many of the last nights to look at, tonight's included.")
    minimum_results: int = Field(
        default=8, ge=3, description="With fewer different results among these nights there is no verdict."
    )

    @model_validator(mode="after")
    def _nights_hold_enough(self) -> Self:
        if self.nights < self.minimum_results:
            raise ValueError(f"minimum_results is {self.minimum_results}, more than {self.nights} nights can have")
        return self


class RatioGate(BaseModel):
    """When time or memory of an entry is more than that of earlier runs; as it stands, the gate of memory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int = Field(default=20, ge=2, description="How many of the last comparable runs to look at.")
    minimum_runs: int = Field(default=7, ge=2, description="With fewer of them there is no verdict.")
    smallest_ratio: float = Field(default=1.4, gt=1, description="Smallest ratio to the median that matters.")
    false_alarm: float = Field(
        default=0.0015,
        gt=0,
        le=0.5,
        description="How often noise alone may reach beyond its floor; 0.5 leaves the smallest ratio to decide.",
    )

    @model_validator(mode="after")
    def _window_holds_enough(self) -> Self:
        if self.window < self.minimum_runs:
            raise ValueError(f"minimum_runs is {self.minimum_runs}, more than the window of {self.window} runs holds")
        return self


class SpeedGate(RatioGate):
    """When the time of an entry is more than that of earlier runs.

    A night in ten may well be slow by 30 % for reasons of its own (another tenant, a cold disk), and the noise of every
    night comes on top; what a spread of twenty runs shows of such nights is too little to leave them out, so the ratio
    has to.
    """

    smallest_ratio: float = Field(default=1.5, gt=1, description="Smallest ratio to the median that matters.")


class Gates(BaseModel):
    """The gates of an entry; None for one that is switched off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    accuracy: AccuracyGate | None = AccuracyGate()
    trend: TrendGate | None = TrendGate()
    speed: SpeedGate | None = SpeedGate()
    memory: RatioGate | None = RatioGate()
