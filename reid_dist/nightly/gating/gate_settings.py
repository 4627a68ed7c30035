"""Settings of the gates: metrics, smallest relevant change, and rate of false alarms."""

from __future__ import annotations

import math
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from reid_dist.metrics.metric import parse_metric
from reid_dist.reports.verdicts import SMALLEST_EFFECT

# How many resamples must lie beyond an end of an interval for that end to be known.
_LEAST_BEYOND = 5


class _MetricGate(BaseModel):
    """Common settings of the gates of metrics.

    The smallest change that matters is half a point: two trainings of one model differ by about as much, and papers
    of this field print gains of that size.  With 3,368 queries of 750 identities noise requires more, unless the
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
            # Before anything runs: an unknown name would be missing every night.
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
    """Settings of the gate of accuracy.

    The rates of all gates add up to less than the one night in a hundred that a job may have; the rest covers the error
    of a bootstrap and of the spread of few runs.
    """

    last_good_share: ClassVar[float] = 0.5
    reference_share: ClassVar[float] = 0.5
    """Parts of `false_alarm` per baseline: they add up to 1, so that the tests together have the rate."""

    smallest_share: ClassVar[float] = 0.5

    false_alarm: float = Field(
        default=0.004,
        gt=0,
        lt=0.5,
        description="Allowed rate of false alarms of a job, over all gated metrics and all runs it is compared with.",
    )


class TrendGate(_MetricGate):
    """Settings of the gate of the trend: a loss over many nights in small steps."""

    false_alarm: float = Field(
        default=0.001,
        gt=0,
        lt=0.5,
        description="Allowed rate of false alarms of a job, over all gated metrics.",
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
    """Settings of the gate of memory, and base of that of speed."""

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
    """Settings of the gate of speed.

    One night in ten may be slow by 30% for external reasons (another tenant, a cold disk), beside the noise of every
    night; the spread of twenty runs cannot separate such nights, so the ratio is larger.
    """

    smallest_ratio: float = Field(default=1.5, gt=1, description="Smallest ratio to the median that matters.")


class Gates(BaseModel):
    """The gates of an entry; None for one that is switched off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    accuracy: AccuracyGate | None = AccuracyGate()
    trend: TrendGate | None = TrendGate()
    speed: SpeedGate | None = SpeedGate()
    memory: RatioGate | None = RatioGate()
