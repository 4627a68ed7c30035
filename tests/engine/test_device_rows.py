"""Rows on a device of torch: they travel as they are stored, and stay while there is room."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from test_device_products import in_float32, on_device, sets

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.engine.distances import device_rows
from reid_dist.engine.distances.device_rows import StoredRows
from reid_dist.engine.distances.devices import TorchDevice, device_of

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def device(monkeypatch):
    """A device of this test, in buffers of a few rows."""
    monkeypatch.setattr(device_rows, "_STAGED_BYTES", 1000)
    return TorchDevice("cpu")


@pytest.fixture
def sent(monkeypatch):
    """Types and shapes of all rows that are sent to the device."""
    found, real = [], device_of("cpu").uploads.send

    def send(array):
        found.append((array.dtype.name, array.shape))
        return real(array)

    monkeypatch.setattr(device_of("cpu").uploads, "send", send)
    return found


def stored(key, n, dim=4):
    return StoredRows((key,), np.full((n, dim), key, np.float32))


def test_every_half_is_widened_as_on_the_cpu(device):
    """All finite ones, subnormal numbers among them, in pieces."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves = bits[(bits & 0x7C00) != 0x7C00].view(np.float16).reshape(-1, 8)
    there = device.uploads.send(halves)
    assert there.dtype == torch.float16
    assert there.double().float().numpy().tobytes() == halves.astype(np.float32).tobytes()


@pytest.mark.parametrize("shape", [(0, 5), (1, 3), (100, 7), (250, 1)])
def test_rows_arrive_as_they_are(device, shape):
    rows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for given in (rows, rows[::2], np.asfortranarray(rows)):
        before = given.copy()
        given.flags.writeable = False
        assert np.array_equal(device.uploads.send(given).numpy(), before)


def test_threads_share_the_buffers(device):
    rows = [np.full((300, 5), number, np.float32) for number in range(6)]
    found = {}

    def send(number):
        found[number] = device.uploads.send(rows[number])

    threads = [threading.Thread(target=send, args=[number]) for number in range(len(rows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[number].numpy(), rows[number]) for number in found)
    assert len(found) == len(rows)


def test_rows_of_least_recent_use_leave(device, monkeypatch):
    """Those that stay take at most half of what is free."""
    total = 1000
    monkeypatch.setattr(device, "free_bytes", lambda: total - device.resident._bytes())
    one, two, three = (device.resident.get(stored(key, 10)) for key in (1, 2, 3))
    assert device.resident.get(stored(1, 10)) is one
    # Another process takes memory: there is room for two.
    total = 700
    four = device.resident.get(stored(4, 10))
    assert device.resident.get(stored(1, 10)) is one
    assert device.resident.get(stored(4, 10)) is four
    again = device.resident.get(stored(3, 10))
    assert again is not three
    assert torch.equal(again, three)
    assert two[0, 0] == 2
    assert device.resident.fits(stored(3, 100))
    assert device.resident.fits(stored(9, 21))
    assert not device.resident.fits(stored(9, 22))


def test_rows_leave_when_they_are_not_used(device, monkeypatch):
    monkeypatch.setattr(device_rows, "_IDLE_S", 0.05)
    first = device.resident.get(stored(1, 3))
    deadline = time.monotonic() + 10
    while device.resident._bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert device.resident.get(stored(1, 3)) is not first


@pytest.fixture
def halves(tmp_path):
    """A set in float16, in chunks, opened."""
    sets(n=400, dim=16).save(tmp_path / "halves.zarr", dtype="float16", chunk_rows=50)
    return FeatureSet.open(tmp_path / "halves.zarr")


def test_blocks_travel_once_and_in_float16(halves, sent):
    for name in ("cosine", "euclidean"):
        with in_float32():
            right = evaluate(halves, halves, distance=name)
            lists = nearest(halves, halves, k=4, distance=name)
        with on_device((64, 64)):
            sent.clear()
            assert evaluate(halves, halves, distance=name).result_digest == right.result_digest
            # Tiles of 64 rows are parts of blocks: here queries, and gallery rows.
            assert sum(shape[0] for _, shape in sent) == 2 * 400
            sent.clear()
            there = nearest(halves, halves, k=4, distance=name, chunk_rows=64)
        # Every block is compared with every other one.
        assert len(sent) > 2
        assert sum(shape[0] for _, shape in sent) == 400
        assert there.index.tobytes() == lists.index.tobytes()
        assert there.distance.tobytes() == lists.distance.tobytes()
        assert {dtype for dtype, _ in sent} == {"float16"}


def test_blocks_for_which_there_is_no_room_travel_in_tiles(halves, sent, monkeypatch):
    with in_float32():
        right = evaluate(halves, halves)
    monkeypatch.setattr(device_of("cpu"), "free_bytes", lambda: 1000)
    with on_device((64, 64)):
        assert evaluate(halves, halves).result_digest == right.result_digest
    assert len({shape for _, shape in sent}) > 1
    assert not device_of("cpu").resident._bytes()


def test_nothing_stays_after_a_run(halves):
    with on_device():
        evaluate(halves, halves)
    assert not device_of("cpu").resident._bytes()
