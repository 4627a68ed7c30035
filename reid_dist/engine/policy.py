"""Policy of a job: which products its pairs are read from.  Results do not depend on it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from dataclasses import dataclass
from typing import Final

from reid_dist.clusters.settings import AUTO, forced_products, wanted_device
from reid_dist.core.environment import (
    DEVICE_INTEGERS_VARIABLE,
    SCREEN_VARIABLE,
    TORCH_DEVICE_VARIABLE,
    TRITON_VARIABLE,
)
from reid_dist.engine.distances.devices import TorchDevice, device_of, may_have
from reid_dist.engine.distances.integers import PROVIDERS, IntegerProduct, exact_product, seconds_saved
from reid_dist.errors import InputError, RunFailedError
from reid_dist.kernels.warmup import compile_examples

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
    # Whether the device multiplies eight-bit integers; None to time both products, on that device.
    device_integers: bool | None = None
    # Whether kernels of Triton read the tiles of a device, where they can be compiled: they have not been timed yet.
    triton: bool = False

    @classmethod
    def in_force(cls, screen: str | None = None, device: str = AUTO) -> Policy:
        """Policy of the jobs that this process defines now; `screen` and `device` are forced unless others are.

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
        triton = os.environ.get(TRITON_VARIABLE) == "1"
        return cls(forced, torch_device=where, device_integers=chosen_integers, triton=triton)

    def expects_device(self, n_multiplications: int) -> bool:
        """Whether a block pair with so many multiplications is computed on a device, as far as that is known here."""
        where = self.torch_device
        if where is None or self.forced not in (None, "cuda"):
            return False
        return (self.forced == "cuda" or n_multiplications >= _WORTH_A_DEVICE) and may_have(where)

    def device(self, n_multiplications: int) -> TorchDevice | None:
        """Device for a block pair with so many multiplications; None where there is none, or it is not worth it."""
        if self.torch_device is None or not self.expects_device(n_multiplications):
            return None
        device = device_of(self.torch_device)
        return None if device is None or device.is_lost else device

    def uses_integers_of(self, device: TorchDevice, dim: int) -> bool:
        """Whether a device multiplies integers for rows of `dim` elements: chosen, or faster there."""
        if self.device_integers is False or not device.has_integers:
            return False
        return self.device_integers is True or device.rates(dim).integers_pay

    def load_device(self, n_multiplications: int) -> None:
        """Begin to load the device for such a block pair in a thread, beside the reading that comes first."""
        if self.torch_device is not None and self.expects_device(n_multiplications):
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

    def seconds_saved(self, dim: int) -> float:
        """CPU seconds per pair of rows of `dim` elements that integers save where they decide it; 0 if unused."""
        return 0.0 if self.integer_product() is None else seconds_saved(self.integers, dim)

    def describe(self) -> dict[str, str | bool | None]:
        """Return the policy for a report."""
        device = {"device": self.torch_device, "device_integers": self.device_integers, "triton": self.triton}
        return {"forced": self.forced, "integers": self.integers, **device}


def _load(where: str) -> None:
    # Tasks report what is wrong.
    with contextlib.suppress(RunFailedError):
        if device_of(where) is not None:
            compile_examples("device")


def _device_name() -> str:
    return os.environ.get(TORCH_DEVICE_VARIABLE) or "cuda"


def require_device() -> None:
    """Raise `InputError` unless this process can use the device for products."""
    where = _device_name()
    if importlib.util.find_spec("torch") is None:
        raise InputError("--device cuda needs torch, which is not installed: pip install 'reid-dist[cuda]'")
    if not may_have(where):
        raise InputError(
            "--device cuda finds no GPU and driver here: look at nvidia-smi, or leave it out to compute on the CPU"
        )


UNFORCED: Final = Policy()
"""Policy that leaves the choice."""
