"""Products on a device of torch, here on torch's own CPU device: the same results, bit for bit."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_runs import use_device
from support.exact_products import use_precisions
from support.row_blocks import labelled_hard_rows
from support.sampling import examples
from support.strategies import seeds
from support.tile_problems import Problem, content

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.clusters.settings import forcing
from reid_dist.core.environment import SCREEN_VARIABLE, TORCH_DEVICE_VARIABLE
from reid_dist.engine import policy
from reid_dist.engine.distances import devices
from reid_dist.engine.distances.devices import TorchDevice, device_of
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy, require_device
from reid_dist.engine.reductions import bands
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.device_integers import DeviceIntegers
from reid_dist.engine.reductions.device_tiles import DeviceTiles
from reid_dist.errors import InputError, RunFailedError

torch = pytest.importorskip("torch", reason="torch is not installed")


@contextlib.contextmanager
def on_device(tile=None, *, integers=False):
    """Compute on torch's CPU device, in tiles of some rows, from integers as often as they serve or not at all."""
    with pytest.MonkeyPatch.context() as patch:
        use_device(patch, tile, integers=integers)
        if integers:
            use_precisions(patch, lambda n: np.full(n, Precision.INTEGERS))
        yield patch


@contextlib.contextmanager
def in_float32():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SCREEN_VARIABLE, "float32")
        yield


@settings(max_examples=examples(40))
@given(
    seed=seeds(),
    is_reranked=st.booleans(),
    tile=st.sampled_from([(3, 17), (5, 64), (64, 200)]),
    most=st.sampled_from([0, 5, 40, 10**9]),
    room=st.sampled_from([0, 1 << 16]),
    integers=st.booleans(),
)
def test_every_reduction(seed, is_reranked, tile, most, room, integers):
    """Whatever is open at once, and whatever is read again in float64."""
    problem, shape = Problem(seed, is_reranked), TileShape(*tile)
    with in_float32():
        alone = {name: problem.run([name], shape)[name] for name in problem.reductions}
    with on_device(tile, integers=integers) as patch:
        patch.setattr(bands, "most_inside", lambda size, given_up: most)
        # Tiles are read in the first precision, and from some row on in the next one.
        if not integers:
            use_precisions(patch, lambda n: np.full(n, Precision.PLAIN))
        patch.setattr(bands, "OPEN_PAIRS", room)
        for name in problem.reductions:
            if name != "histogram":
                assert content(problem.run([name], shape)[name]) == content(alone[name]), name
        together = problem.run([*problem.reductions], shape)
    for name, found in together.items():
        if name != "histogram":
            assert content(found) == content(alone[name]), name


@settings(max_examples=examples(20))
@given(seed=seeds(), is_reranked=st.booleans(), tile=st.sampled_from([(3, 17), (64, 200)]))
def test_a_histogram_counts_the_same_pairs(seed, is_reranked, tile):
    """Roundings move a value to the next key at most."""
    problem = Problem(seed, is_reranked)
    with in_float32():
        right = problem.run(["histogram"], TileShape(*tile))["histogram"]
    with on_device(tile):
        found = problem.run(["histogram"], TileShape(*tile))["histogram"]
    assert found.total == right.total > 0

    def up_to(counts, keys):
        return np.concatenate([[0], np.cumsum(counts.count)])[np.searchsorted(counts.key, keys, "right")]

    keys = np.union1d(right.key, found.key)
    assert (up_to(right, keys - 1) <= up_to(found, keys)).all()
    assert (up_to(found, keys) <= up_to(right, keys + 1)).all()


@pytest.mark.parametrize("protocol", ["market1501", "cuhk03_separate_cameras"])
def test_verification_is_counted_on_the_device(protocol, monkeypatch):
    """No tile comes back: not for a histogram, nor for brackets; the second protocol hides columns by camera."""
    options = {"metrics": ["mAP", "EER", "TAR@FAR=0.01"], "roc": True, "protocol": protocol}
    with in_float32():
        right = evaluate(sets(), sets(), **options).result_digest
    if protocol == "market1501":
        monkeypatch.setattr(DeviceTiles, "_multiply", None)
    with on_device():
        report = evaluate(sets(), sets(), **options)
    assert report.result_digest == right
    assert "CPU of torch" in report.environment["products"]


OPTIONS = (
    {"topk": 3},
    {"metrics": ["mAP", "DIR@FAR=0.1"]},
    {"metrics": ["mAP", "EER", "TAR@FAR=0.01"], "roc": True},
    {"protocol": "cuhk03"},
    {"collapse": "camid"},
    {"rerank": "k_reciprocal(k1=4,k2=2)"},
    {"expand": "aqe(k=2)"},
    {"ties": True},
)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["cosine", "euclidean", "sqeuclidean"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_same_report_as_in_float32(name, data):
    rows, pids, camids = labelled_hard_rows(data, name)
    options = data.draw(st.sampled_from([each for each in OPTIONS if name == "cosine" or "expand" not in each]))
    items = FeatureSet.from_arrays(rows, pids, camids)
    others = FeatureSet.from_arrays(rows[::-1], pids)

    def found():
        report = evaluate(items, items, distance=name, **options)
        lists = nearest(items, others, k=4, distance=name)
        own = nearest(items, items, k=4, distance=name)
        return report, [each.tobytes() for lists in (lists, own) for each in (lists.index, lists.distance)]

    with in_float32():
        report, lists = found()
    integers = data.draw(st.booleans())
    with on_device(data.draw(st.sampled_from([None, (16, 24), (64, 64)])), integers=integers):
        there, lists_there = found()
    assert there.result_digest == report.result_digest
    assert lists_there == lists
    assert "on CPU of torch" in there.environment["products"]
    assert ("int8" in there.environment["products"]) <= integers


def sets(n=300, dim=16):
    rng = np.random.default_rng(3)
    centres, pids = rng.normal(size=(20, dim)), rng.integers(0, 20, n)
    rows = (centres[pids] + rng.normal(size=(n, dim))).astype(np.float32)
    return FeatureSet.from_arrays(rows, pids, rng.integers(0, 4, n))


def test_memory_that_is_too_small_for_a_tile(monkeypatch):
    """A tile is computed in halves, and these in halves, until they find room; the results are the same."""
    items = sets()
    with in_float32():
        right, lists = evaluate(items, items), nearest(items, items, k=5)
    real, sizes = DeviceTiles._products, []

    def products(tiles, queries, rows, bias):
        sizes.append(rows.stop - rows.start)
        if sizes[-1] > 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(tiles, queries, rows, bias)

    monkeypatch.setattr(DeviceTiles, "_products", products)
    monkeypatch.setattr(devices, "_FEWEST_PAIRS", 1)
    monkeypatch.setattr(device_of("cpu"), "_most_pairs", 1 << 27)
    with on_device():
        assert evaluate(items, items).result_digest == right.result_digest
        assert nearest(items, items, k=5).distance.tobytes() == lists.distance.tobytes()
    assert max(sizes) == 300
    assert min(sizes) <= 37


def test_halved_tiles_grow_with_the_next_block_pairs(monkeypatch):
    device = device_of("cpu")
    monkeypatch.setattr(device, "_most_pairs", devices._MOST_PAIRS)
    whole = device.tile(is_reduced=True)
    assert device.halve()
    assert device.halve()
    sizes = [device.tile(is_reduced=True)[1] for _ in range(3)]
    assert sizes == [whole[1] // 2, whole[1], whole[1]]


def test_times_for_a_plan(monkeypatch):
    device = device_of("cpu")
    here = Policy(torch_device="cpu")
    monkeypatch.setitem(device._rates, 8, devices.Rates(2e-9, 1e-9))
    assert here.device_seconds(8) == (1e-9, True)
    assert replace(here, device_integers=False).device_seconds(8) == (2e-9, True)

    def no_memory(dim):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device, "_time", no_memory)
    assert not device.rates(9).integers_pay
    for policy_of_plan, dim in ((here, 9), (Policy(torch_device=None), 8)):
        seconds, is_measured = policy_of_plan.device_seconds(dim)
        assert not is_measured
        assert 0 < seconds < 1e-9


def test_memory_for_nothing(monkeypatch):
    def products(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(DeviceTiles, "_products", products)
    monkeypatch.setattr(device_of("cpu"), "_most_pairs", 1 << 27)
    with on_device(), pytest.raises(RunFailedError, match=r"has no memory for tiles of .* rows; end other processes"):
        evaluate(sets(), sets())


def run_in_eight_bits(distance):
    """Ranks, lists, and neighbours both ways; the products that were read, by need."""
    items, others = sets(), sets(200)
    report = evaluate(items, items, rerank="k_reciprocal(k1=4,k2=2)", distance=distance)
    found = [report.result_digest]
    for each in (nearest(items, others, k=3, distance=distance), nearest(items, items, k=3, distance=distance)):
        found += [each.index.tobytes(), each.distance.tobytes()]
    return found, report.environment["products"]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_what_is_read_in_eight_bits(distance):
    with in_float32():
        right, _ = run_in_eight_bits(distance)
    with on_device(integers=True):
        found, products = run_in_eight_bits(distance)
    assert found == right
    words = dict(each.split(": ") for each in products.split("; "))
    assert words["neighbours"] == "int8 on CPU of torch"
    assert words["ranks"].startswith("int8 on CPU of torch")


def test_a_wrong_bound_of_integers_ends_the_run(monkeypatch):
    """Integers that are farther off than their bound are found in a sample of a tile."""
    real = DeviceIntegers._errors
    monkeypatch.setattr(DeviceIntegers, "_errors", lambda *given: np.float32(0.01) * real(*given))
    items = sets(dim=64)
    for compute in (
        lambda: evaluate(items, items),
        lambda: nearest(items, items, k=3),
        lambda: nearest(items, sets(200, 64), k=3),
    ):
        with on_device(integers=True), pytest.raises(RunFailedError, match=r"which differs by more than the bound"):
            compute()


def test_wrong_refined_values_end_the_run(monkeypatch):
    real = DeviceIntegers._refined
    monkeypatch.setattr(DeviceIntegers, "_refined", lambda *given: real(*given) * (1 + 2.0**-12))
    for compute in (lambda: evaluate(sets(), sets()), lambda: nearest(sets(), sets(), k=3)):
        with on_device(integers=True), pytest.raises(RunFailedError, match=r"which differs by more than the bound"):
            compute()


@pytest.mark.parametrize("fault", ["missing", "wrong", "refused"])
def test_a_device_without_integers_computes_in_float32(fault, monkeypatch):
    real = torch._int_mm

    def saturated(near, far):
        return real(near, far).clamp(max=32767)

    def refused(near, far):
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")

    if fault == "missing":
        monkeypatch.delattr(torch, "_int_mm")
    else:
        monkeypatch.setattr(torch, "_int_mm", saturated if fault == "wrong" else refused)
    device = TorchDevice("cpu")
    device.test()
    assert not device.has_integers
    assert not device.rates(16).integers_pay
    monkeypatch.setattr(policy, "device_of", lambda where: device)
    with in_float32():
        right = evaluate(sets(), sets()).result_digest
    with on_device(integers=True):
        report = evaluate(sets(), sets())
    assert report.result_digest == right
    assert report.environment["products"] == "float32 on CPU of torch"


def test_integers_are_used_where_they_are_faster(monkeypatch):
    device = device_of("cpu")
    assert device.has_integers
    rates = device.rates(8)
    assert 0 < rates.float32 < np.inf
    assert 0 < rates.int8 < np.inf
    assert device.rates(8) is rates
    for fast, slow, pays in ((1.0, 0.5, True), (1.0, 0.9, False)):
        monkeypatch.setitem(device._rates, 8, devices.Rates(fast, slow))
        assert Policy().uses_integers_of(device, 8) is pays
    assert Policy(device_integers=True).uses_integers_of(device, 8)
    assert not Policy(device_integers=False).uses_integers_of(device, 8)


def test_wrong_products_end_the_run(monkeypatch):
    """Values that are farther off than their bounds are found in a sample, before any result."""
    real = DeviceTiles._products
    monkeypatch.setattr(DeviceTiles, "_products", lambda *given: real(*given) * (1 + 2.0**-12))
    for compute in (
        lambda: evaluate(sets(), sets()),
        lambda: evaluate(sets(), sets(), metrics=["EER"]),
        lambda: nearest(sets(), sets(), k=3),
        lambda: nearest(sets(), sets(200), k=3),
    ):
        with on_device(), pytest.raises(RunFailedError, match=r"torch .* which differs by more than the bound"):
            compute()


def test_a_device_that_is_lost(monkeypatch, caplog):
    """The pairs that it had are computed on the CPU, and all that follow."""
    items = sets()
    with in_float32():
        right = evaluate(items, items, rerank="k_reciprocal(k1=4,k2=2)")
    device, real, calls = device_of("cpu"), DeviceTiles._products, []

    def products(*given):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("CUDA error: unspecified launch failure\nand more")
        return real(*given)

    monkeypatch.setattr(DeviceTiles, "_products", products)
    monkeypatch.setattr(device, "is_cuda", True)
    monkeypatch.setattr(device, "is_lost", False)
    monkeypatch.setattr(device, "free_bytes", lambda: 1 << 26)
    monkeypatch.setattr(device, "upload", lambda array: torch.tensor(array))
    with on_device(), caplog.at_level(logging.WARNING, "reid_dist"):
        found = evaluate(items, items, rerank="k_reciprocal(k1=4,k2=2)")
    assert found.result_digest == right.result_digest
    (warning,) = (each.getMessage() for each in caplog.records)
    assert "unspecified launch failure cannot be used any more; its pairs are computed on the CPU" in warning
    assert len(calls) == 2


def test_a_device_of_lower_precision_is_refused(monkeypatch):
    real = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: real(a.bfloat16(), b.bfloat16()).to(a.dtype))
    with pytest.raises(RunFailedError, match=r"products of CPU of torch .* are not exact where float32 is"):
        TorchDevice("cpu").test()


def test_the_precision_of_the_process_returns(monkeypatch):
    device, settings = TorchDevice("cpu"), torch.backends.cuda.matmul
    monkeypatch.setattr(device, "is_cuda", True)
    before = settings.fp32_precision
    try:
        settings.fp32_precision = "tf32"
        with device.exactly():
            with device.exactly():
                assert settings.fp32_precision == "ieee"
            assert settings.fp32_precision == "ieee"
        assert settings.fp32_precision == "tf32"
    finally:
        settings.fp32_precision = before


def test_where_products_are_computed(monkeypatch):
    monkeypatch.setenv(TORCH_DEVICE_VARIABLE, "cpu")
    many, few = 1 << 40, 1000
    free = Policy.in_force()
    assert free.device(many) is device_of("cpu")
    assert free.device(few) is None
    with forcing(None, "cpu"):
        assert Policy.in_force().device(many) is None
    with forcing(None, "cuda"):
        forced = Policy.in_force()
        assert forced.device(few) is device_of("cpu")
        assert forced.integer_product() is None
    with forcing("int8", "cuda"):
        assert Policy.in_force().device(many) is None
    assert Policy.in_force(None, "cpu").torch_device is None


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(policy, "may_have", lambda where: False)
    assert Policy.in_force().device(1 << 40) is None
    with pytest.raises(InputError, match="finds no GPU and driver here: look at nvidia-smi, or leave out --device"):
        require_device()
    monkeypatch.setattr(policy.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs torch, which is not installed: pip install 'reid-dist\[cuda\]'"):
        require_device()


def test_a_forced_gpu_that_is_not_there_is_named_once(monkeypatch, caplog):
    """The job goes on, with the same digest."""
    with in_float32():
        right = evaluate(sets(), sets()).result_digest
    monkeypatch.setattr(policy, "may_have", lambda where: False)
    policy._warn_of_none.cache_clear()
    monkeypatch.setenv(SCREEN_VARIABLE, "cuda")
    with caplog.at_level(logging.WARNING, "reid_dist"):
        for _ in range(2):
            assert evaluate(sets(), sets()).result_digest == right
        assert Policy.in_force(gpus=True).on_workers
    (warning,) = (each.getMessage() for each in caplog.records)
    assert "products on a GPU are forced" in warning
    assert "the CPU computes them" in warning
    policy._warn_of_none.cache_clear()
