"""Products on torch's CPU device, forced for tests."""

from __future__ import annotations

import pytest

from reid_dist.core.environment import DEVICE_INTEGERS_VARIABLE, SCREEN_VARIABLE, TORCH_DEVICE_VARIABLE
from reid_dist.engine.distances.devices import TorchDevice
from reid_dist.engine.reductions import surroundings


def use_device(monkeypatch, tile=None, *, integers=False):
    """Compute all jobs that this process defines there, in tiles of some rows, from integers where these serve."""
    monkeypatch.setenv(SCREEN_VARIABLE, "cuda")
    monkeypatch.setenv(TORCH_DEVICE_VARIABLE, "cpu")
    monkeypatch.setenv(DEVICE_INTEGERS_VARIABLE, str(int(integers)))
    if integers:
        monkeypatch.setattr(surroundings, "pay_for_lists", lambda *_: True)
    if tile is not None:
        monkeypatch.setattr(TorchDevice, "tile", lambda self, *, is_reduced: tile)


@pytest.fixture(autouse=True)
def integers_on_device(monkeypatch):
    """Tiles of a device, of which some are read as integers, for all tests of a module that imports this."""
    pytest.importorskip("torch", reason="torch is not installed")
    use_device(monkeypatch, (5, 24), integers=True)
