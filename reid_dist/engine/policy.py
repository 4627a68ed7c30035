"""Policy of a job: which products its pairs are read from.  Results do not depend on it."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import threading
from dataclasses import asdict, dataclass
from functools import cache
from typing import Final

from reid_dist.clusters.settings import AUTO, forced_products, wanted_device, workers_have_gpus
from reid_dist.core.environment import (
    DEVICE_INTEGERS_VARIABLE,
    SCREEN_VARIABLE,
    TORCH_DEVICE_VARIABLE,
)
from reid_dist.engine.distances.devices import DeviceLostError, TorchDevice, assumed_seconds, device_of, may_have
from reid_dist.engine.distances.integers import PROVIDERS, IntegerProduct, exact_product
from reid_dist.errors import InputError, RunFailedError

_LOG: Final = logging.getLogger("reid_dist")

_PRODUCTS: Final = ("float32", "int8", "cuda")

# Multiplications of a block pair from which on a device is used: below, its preparation takes longer.
_WORTH_A_DEVICE: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides the products of a job: made in the process that defines the job, and sent with its tasks.

    It is no part of the identity of a job or of its partial results.
    """

    # Products that all blocks are read from, ``float32``, ``int8`` or ``cuda``; None for the cheaper ones.
    forced: str | None = None
    # Provider of products of integers, one of `PROVIDERS`.
    integers: str = "onnxruntime"
    # Device of torch for products, where it is worth it; None for none.
    torch_device: str | None = "cuda"
    # Whether workers have the device, wherever the job is defined.
    on_workers: bool = False
    # Whether the device multiplies eight-bit integers; None to time both products, on that device.
    device_integers: bool | None = None

    @classmethod
    def in_force(cls, screen: str | None = None, device: str = AUTO, *, gpus: bool = False) -> Policy:
        """Policy of the jobs that this process defines now; `screen` and `device` are forced unless others are.

        `gpus` says that workers have GPUs, whether or not this process has.

        Raises `InputError` if the environment forces unknown products.
        """
        forced = forced_products() or screen
        if forced not in (None, *_PRODUCTS):
            raise InputError(
                f"{SCREEN_VARIABLE} is {forced!r}; it may be float32, int8 or cuda, or unset for the faster one"
            )
        wanted = wanted_device()
        chosen = device if wanted == AUTO else wanted
        if forced is None and chosen == "cuda":
            forced = "cuda"
        where = None if chosen == "cpu" and forced != "cuda" else _device_name()
        chosen_integers = {"1": True, "0": False}.get(os.environ.get(DEVICE_INTEGERS_VARIABLE, ""))
        on_workers = where is not None and (gpus or workers_have_gpus())
        if forced == "cuda" and where is not None and not on_workers and not may_have(where):
            _warn_of_none(where)
        return cls(forced, torch_device=where, on_workers=on_workers, device_integers=chosen_integers)

    def expects_device(self, n_multiplications: int) -> bool:
        """Whether a block pair with so many multiplications is computed on a device, as far as that is known here."""
        return self._is_worth_it(n_multiplications) and (self.on_workers or may_have(self.torch_device or ""))

    def _is_worth_it(self, n_multiplications: int) -> bool:
        if self.torch_device is None or self.forced not in (None, "cuda"):
            return False
        return self.forced == "cuda" or n_multiplications >= _WORTH_A_DEVICE

    def device(self, n_multiplications: int) -> TorchDevice | None:
        """Device for a block pair with so many multiplications; None where there is none, or it is not worth it."""
        if self.torch_device is None or not self._is_worth_it(n_multiplications):
            return None
        device = device_of(self.torch_device)
        return None if device is None or device.is_lost else device

    def uses_integers_of(self, device: TorchDevice, dim: int) -> bool:
        """Whether a device multiplies integers for rows of `dim` elements: chosen, or faster there."""
        if self.device_integers is False or not device.has_integers:
            return False
        return self.device_integers is True or device.rates(dim).integers_pay

    def device_seconds(self, dim: int) -> tuple[float, bool]:
        """Seconds of a device per pair of rows of `dim` elements, and whether they were measured, here."""
        device, found = None if self.torch_device is None else device_of(self.torch_device), math.inf
        with contextlib.suppress(DeviceLostError):
            if device is not None:
                rates = device.rates(dim)
                found = rates.int8 if self.uses_integers_of(device, dim) else rates.float32
        return (found, True) if found < math.inf else (assumed_seconds(dim), False)

    def load_device(self, n_multiplications: int) -> None:
        """Begin to load the device for such a block pair in a thread, beside the reading that comes first."""
        if self.torch_device is not None and self._is_worth_it(n_multiplications) and may_have(self.torch_device):
            threading.Thread(target=_load, args=[self.torch_device], name="early device", daemon=True).start()

    @property
    def may_use_integers(self) -> bool:
        """Whether products of integers are installed here, and float32 is not forced; they may still be inexact."""
        return self.forced in (None, "int8") and PROVIDERS.get(self.integers).is_installed()

    def integer_product(self) -> IntegerProduct | None:
        """The product of integers of this process; None for products in float32.

        Raises `InputError` if integers are forced and cannot be used.
        """
        if self.forced in ("float32", "cuda"):
            return None
        product = exact_product(self.integers)
        if product is None and self.forced == "int8":
            forced = f"products of int8 are forced ({SCREEN_VARIABLE}, or screen of the cluster file)"
            provider = PROVIDERS.get(self.integers)
            try:
                provider.make()
            except ImportError as error:
                why = f"cannot be imported ({error})" if provider.is_installed() else "is not installed"
                how = f"pip install 'reid-dist[{provider.extra}]'"
                raise InputError(f"{forced}, and {provider.name} {why}: {how}") from None
            raise InputError(f"{forced}, and those of {provider.name} are not exact on this machine; unset it")
        return product

    def describe(self) -> dict[str, str | bool | None]:
        """Return the policy for a report."""
        described = asdict(self)
        return {"device": described.pop("torch_device"), **described}


def _load(where: str) -> None:
    # Tasks report what is wrong.
    with contextlib.suppress(RunFailedError):
        device_of(where)


def _device_name() -> str:
    return os.environ.get(TORCH_DEVICE_VARIABLE) or "cuda"


@cache
def _warn_of_none(where: str) -> None:
    _LOG.warning(
        "products on a GPU are forced, and torch, a GPU or its driver is missing here (%s): the CPU computes them, "
        "except on workers that have all three",
        where,
    )


def require_device() -> None:
    """Raise `InputError` unless this process can use the device for products."""
    where = _device_name()
    if importlib.util.find_spec("torch") is None:
        raise InputError("a GPU needs torch, which is not installed: pip install 'reid-dist[cuda]'")
    if not may_have(where):
        raise InputError(
            "torch finds no GPU and driver here: look at nvidia-smi, or leave out --device cuda and gpus to compute on "
            "the CPU"
        )


UNFORCED: Final = Policy()
"""Policy that leaves the choice."""
