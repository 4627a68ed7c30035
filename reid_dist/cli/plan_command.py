"""``reid-dist plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from reid_dist.cli.click_options import COUNT, PATH, RESOURCES, GroupedCommand, option, override_option
from reid_dist.core.formatting import byte_size, counted, rough_duration

if TYPE_CHECKING:
    from reid_dist.clusters.connection import Size
    from reid_dist.engine.calibration import ListRates, Rates
    from reid_dist.engine.plan import Plan
    from reid_dist.engine.policy import Policy
    from reid_dist.stages.search_plan import Cost, SearchPlan
    from reid_dist.stages.stage_plan import StagePlan

# Operations from which a job is large: several minutes of a core.
_LARGE_FLOP = 2e13

# Seconds of start and end of a run, and of a row from its list of neighbours to its weights.
_STARTING = 2.0
_SECONDS_PER_ROW = 3e-5
# An operation of sums in float64 in a fixed order takes so many times as long as one of the product in float32.
_FIXED_ORDER = 9


@click.command("plan", cls=GroupedCommand)
@click.argument("pipeline", type=PATH)
@override_option
@option(
    "--cluster",
    "cluster_file",
    group=RESOURCES,
    type=PATH,
    metavar="FILE",
    help="Cluster file to plan for. A running scheduler is queried; nothing is started.",
)
@option(
    "--threads", group=RESOURCES, metavar="N", type=COUNT, help="Total threads of all workers.  Default: all cores."
)
@option(
    "--memory-per-thread",
    "memory_gib",
    group=RESOURCES,
    metavar="GIB",
    type=click.FloatRange(min=0, min_open=True),
    help="Memory of each thread, GiB.",
)
@option(
    "--gflops",
    group=RESOURCES,
    metavar="RATE",
    type=click.FloatRange(min=0, min_open=True),
    help="float32 GFLOP/s of one thread.  Default: measured.",
)
@option(
    "--read-rate",
    group=RESOURCES,
    metavar="RATE",
    type=click.FloatRange(min=0, min_open=True),
    help="Total storage read rate, GB/s.  Default: unlimited.",
)
def command(
    pipeline: Path,
    overrides: tuple[str, ...],
    cluster_file: Path | None,
    threads: int | None,
    memory_gib: float | None,
    gflops: float | None,
    read_rate: float | None,
) -> None:
    """Show tiles, tasks, memory and estimated time of the job in a PIPELINE file; fail if the job does not fit.

    The command reads labels, but no features. The time is estimated from rates that are measured on this machine in
    about a second, or from rates that you give.

    \b
    Examples:
      reid-dist plan pipelines/market1501.yaml --threads 64 --memory-per-thread 4
      reid-dist plan pipelines/million_gallery.yaml --cluster cluster_configs/local.yaml
      reid-dist plan pipelines/million_gallery.yaml --threads 512 --gflops 60 --read-rate 3
      reid-dist plan pipelines/clothes_changing.yaml --set protocol.base=allshots
    """
    from reid_dist.clusters import cluster_size, read_cluster
    from reid_dist.core.environment import threads_of_process
    from reid_dist.engine.calibration import calibrate, calibrate_lists, seconds_saved
    from reid_dist.engine.distances import DISTANCES
    from reid_dist.engine.plan import with_rows
    from reid_dist.engine.policy import Policy
    from reid_dist.engine.scorers import FeatureScorer
    from reid_dist.errors import InputError
    from reid_dist.evaluation.evaluate import plan_job
    from reid_dist.evaluation.pipelines import read_job
    from reid_dist.evaluation.projection import draws_equal_errors
    from reid_dist.evaluation.sides import fused_sides, parse_model
    from reid_dist.evaluation.splits import SplitJob
    from reid_dist.evaluation.sweeps import grid_of
    from reid_dist.metrics.metric import parse_metrics
    from reid_dist.stages.expansion.expansion_steps import parse_expand
    from reid_dist.stages.reranking.rerankers import parse_rerank
    from reid_dist.stages.session import planned_memory
    from reid_dist.stages.stage_plan import plan_expand, plan_rerank
    from reid_dist.stores import FeatureSet

    job = read_job(pipeline, overrides)
    if job.distances is not None or job.lists is not None:
        raise InputError("plan is for jobs over features; one over distances or lists reads its file once, row by row")
    grid = None
    if job.sweep is not None:
        grid = grid_of(job.sweep_options())
    # A weight between 0 and 1 needs the features of all models.
    weight = 0.0 if grid is None else next((point.weight for point in grid.points if 0 < point.weight < 1), 1.0)
    models = [parse_model(text) for text in job.fuse or ()]
    whole = fused_sides(FeatureSet.open(job.query), FeatureSet.open(job.gallery), models, weight)
    # Repeats of features are not looked for, which would read them all.
    repeats = None if job.drop_duplicates == "features" else job.drop_duplicates
    query, gallery = replace(job.sides, drop_duplicates=repeats, left_out=None).kept(*whole)
    size, policy, n_gpus = None, Policy.in_force(), 1
    if cluster_file is not None:
        if threads is not None or memory_gib is not None:
            raise click.UsageError("--threads and --memory-per-thread are given by --cluster; give one or the other")
        cluster = read_cluster(cluster_file)
        size = cluster_size(cluster)
        n_gpus = (getattr(cluster, "gpus", None) or 1) * getattr(cluster, "jobs", 1)
        policy = Policy.in_force(cluster.screen, cluster.device, gpus=cluster.expects_gpus)
        n_threads, memory = size.n_threads, planned_memory(size.memory_per_thread)
    else:
        # Threads of a number of their own are those of other machines.
        n_threads, limit = threads_of_process() if threads is None else (threads, None)
        memory = planned_memory(limit) if memory_gib is None else int(memory_gib * 2**30)
    splits = SplitJob.of(query, gallery, job.split_options()) if job.has_splits else None
    options, swept = job.options() if splits is None else splits.checked.values, None
    if grid is not None:
        first = grid.points[grid.order[0]]
        options |= {"expand": first.expand, "rerank": first.rerank}
        n_points = counted(len(grid.points), "point")
        swept = f"{n_points}, each as below; planned with the longest lists, those of {first.name}"
    limits = {"n_threads": n_threads, "memory_per_thread": memory}
    most_rows = None if splits is None else splits.most_rows
    plan = plan_job(query, gallery, **limits, rows=most_rows, policy=policy, **options)
    shapes = FeatureScorer(query, gallery, DISTANCES.get(job.distance)).shapes
    near, far = shapes if most_rows is None else map(with_rows, shapes, most_rows)
    rerank = None
    if options["rerank"] is not None:
        rerank = plan_rerank(near, far, parse_rerank(options["rerank"]), **limits, chunk_rows=job.chunk_rows)
    steps = () if options["expand"] is None else parse_expand(options["expand"])
    expand = plan_expand(near, far, steps, **limits, chunk_rows=job.chunk_rows)
    distance = DISTANCES.get(job.distance)
    longest = max([10 if rerank is None else rerank.n_compared, *(step.n_compared for step in expand)])
    rates = calibrate(plan.gallery.dim, distance, longest, policy)
    speed = f"{counted(n_threads, 'thread')} such as one here"
    lists = None
    if options["topk"] is not None:
        block_rows = min(plan.gallery_block, plan.gallery.n_rows)
        lists = calibrate_lists(plan.gallery.dim, distance, options["topk"], block_rows, rates.product, policy)
    if gflops is not None:
        factor = 2 * plan.gallery.dim / (gflops * 1e9) / rates.product
        rates, lists = _as_fast(rates, factor), None if lists is None else _as_fast(lists, factor)
        speed = f"{counted(n_threads, 'thread')} of {gflops:g} GFLOP/s"
    n_workers = 1 if size is None else size.n_workers
    listing = 0.0 if lists is None else _list_seconds(plan, lists, options["topk"] or 0, n_threads)
    is_drawn = splits is None and swept is None
    level = options["confidence"] if is_drawn else None
    n_passes = 1 + draws_equal_errors(parse_metrics(options["metrics"] or ()), level)
    reading = 0.0 if read_rate is None else n_passes * plan.bytes_read / (read_rate * 1e9)
    seconds = max(n_passes * _tile_seconds(plan, rates, n_threads) + listing, reading)
    least = seconds
    if gflops is None:
        saving = replace(rates, product=max(0.0, rates.product - seconds_saved(plan.gallery.dim, policy)))
        least = max(n_passes * _tile_seconds(plan, saving, n_threads) + listing, reading)
    if read_rate is not None:
        speed = f"{speed}, {read_rate:g} GB/s from storage"
    per_worker = plan.task_bytes * -(-n_threads // n_workers)
    n_splits, in_all = (1, "") if splits is None else (splits.trials.n_splits, " for all splits")
    n_around = "if more distances lie around thresholds over all pairs than a task may count"
    rows = {
        "sweep": swept,
        "splits": None if splits is None else f"{n_splits}, one after the other, each at most as below",
        "cluster": None if size is None else _cluster_line(size),
        "rows": None if repeats == job.drop_duplicates else "with those that drop_duplicates leaves out",
        "query": f"{near.n_rows} x {near.dim}",
        "gallery": f"{far.n_rows} x {far.dim}, chunks of {far.chunk_rows} rows",
        "tiles": f"{plan.n_tiles} of {plan.tile.query} x {plan.tile.gallery}",
        "tasks": f"{plan.n_tasks} of {plan.query_block} x {plan.gallery_block} rows, on {counted(n_threads, 'thread')}",
        "graph": f"{counted(plan.n_graph_tasks, 'task')} in all, about {byte_size(plan.graph_bytes)}",
        "memory": f"{byte_size(plan.task_bytes)} a task, {byte_size(per_worker)} a worker, "
        f"{byte_size(plan.task_bytes * n_threads)} in all; the results take {byte_size(plan.result_bytes)}",
        "read": f"{byte_size(plan.bytes_read)}, at most {byte_size(plan.bytes_read_by(n_workers))} a worker",
        "arithmetic": f"{plan.flop / 1e12:.3g} TFLOP in products",
        "products": _products_line(plan, policy),
        "gpu": _gpu_line(plan, policy, n_gpus) if policy.expects_device(plan.flop // 2) else None,
        "passes": f"{n_passes}, or {n_passes + 1} {n_around}" if plan.bracket_counts else None,
        "time": f"{rough_duration(n_splits * seconds)}{in_all} on {speed}"
        + _least_words(n_splits * least, n_splits * seconds),
    }
    _print_rows(rows)
    before = "before that" if splits is None else "before that, in every split"
    if rerank is not None:
        click.echo(f"\n{before}, re-ranking")
        _print_rows(_rerank_rows(rerank, rates, n_threads, speed))
    # The last step first, as each precedes what is above it; steps that change nothing have no plan.
    for place, step in reversed(list(enumerate(expand, start=1))):
        number = f", step {place} of {len(expand)}" if len(expand) > 1 else ""
        click.echo(f"\n{before}, expansion{number}: {step.step}")
        _print_rows(_expand_rows(step, far.dim, rates, n_threads, speed))


def _print_rows(rows: Mapping[str, str | None]) -> None:
    """Print what a plan has."""
    for name, text in rows.items():
        if text is not None:
            click.echo(f"{name:<11}{text}")


def _least_words(least: float, seconds: float) -> str:
    """The time where integers decide nearly all pairs, if that is another one."""
    words = rough_duration(least)
    return "" if words == rough_duration(seconds) else f"; {words} where int8 decides nearly all pairs"


def _products_line(plan: Plan, policy: Policy) -> str:
    """The products that are read, and what those of integers would bring for a large job."""
    if policy.forced == "float32":
        return "float32, as is forced"
    if policy.expects_device(plan.flop // 2):
        return "float32 and float64 on a GPU, and int8 where it is faster there"
    if policy.may_use_integers:
        has = policy.integer_product() is not None
        return "int8 where they decide most pairs, float32 for the others" if has else "float32, which is faster here"
    if plan.flop < _LARGE_FLOP:
        return "float32"
    return (
        "float32; with pip install 'reid-dist[int8]', products of eight-bit integers take about half the time for "
        "neighbours and lists, and about two thirds of the time for the ranks of a well-trained model"
    )


def _gpu_line(plan: Plan, policy: Policy, n_gpus: int) -> str:
    """Memory of a GPU, and its time in products and their comparison: without what threads decide for it."""
    from reid_dist.engine.distances.devices import device_bytes

    memory = byte_size(device_bytes(plan.query_block + plan.gallery_block, plan.query.dim))
    seconds, is_measured = policy.device_seconds(plan.query.dim)
    taken = rough_duration(plan.query.n_rows * plan.gallery.n_rows * seconds / n_gpus)
    source = "as timed here" if is_measured else "an estimate: no GPU could be timed here"
    return (
        f"at most {memory} of memory, and rows in half of what is free; {taken} on {counted(n_gpus, 'GPU')} in "
        f"products ({source}); the time below is that of the CPU without any"
    )


def _cluster_line(size: Size) -> str:
    limit = size.memory_per_thread
    memory = "no limit of memory" if limit is None else f"{byte_size(limit)} a thread, half of it planned with"
    return f"{counted(size.n_workers, 'worker')}, {counted(size.n_threads, 'thread')}, {memory}"


def _rerank_rows(plan: StagePlan, rates: Rates, n_threads: int, speed: str) -> dict[str, str | None]:
    search, cost = plan.search, plan.cost
    if search is None:
        raise AssertionError("every re-ranking has a neighbour search")
    items = f"{search.n_items} in the graph, lists of {search.k}"
    seconds = _search_seconds(search, rates)
    made = "graph" if plan.head is None else "heads"
    if plan.head is not None:
        items = f"{counted(search.n_items, 'query')}, each in a graph of {plan.head.n_items}, lists of {plan.head.k}"
        each = plan.head.n_pairs * rates.both_ways + plan.head.n_items * _SECONDS_PER_ROW
        seconds = 1.1 * search.n_pairs * rates.product + search.n_items * each
    return {
        "items": items,
        "tasks": f"{counted(plan.n_tasks, 'pair')} of blocks of {counted(search.block_rows, 'row')}"
        + (f", then {plan.row_tasks} for rows of the {made}" if plan.row_tasks else ", then those of new features"),
        "memory": _memory_line(cost, n_threads),
        "workspace": f"{byte_size(cost.workspace_bytes)} at the most: lists {byte_size(plan.lists.kept)}, "
        f"rows about {byte_size(cost.kept - plan.lists.kept)}",
        "rows": "; ".join(
            f"{each.name}: about {each.expected:.0f} entries, at most {each.most:.0f}" for each in plan.rows
        )
        or "none: the products above are those of the new features",
        "read": byte_size(cost.bytes_read),
        "arithmetic": f"{cost.flop / 1e12:.3g} TFLOP in products, each pair once",
        "time": f"{rough_duration(seconds / n_threads)} on {speed}",
        "warning": "; ".join(plan.warnings) or None,
    }


def _memory_line(cost: Cost, n_threads: int) -> str:
    return f"{byte_size(cost.task_bytes)} a task, {byte_size(cost.task_bytes * n_threads)} in all"


def _expand_rows(plan: StagePlan, dim: int, rates: Rates, n_threads: int, speed: str) -> dict[str, str]:
    search, cost, times = plan.search, plan.cost, plan.times
    flop = cost.flop // times
    shared = {
        "memory": _memory_line(cost, n_threads),
        "workspace": f"{byte_size(cost.workspace_bytes)} at the most, of which {byte_size(cost.kept)} "
        f"stay: {'statistics' if search is None else 'lists'} and new features",
    }
    if search is None:
        return {
            "tasks": f"{counted(plan.row_tasks, 'block')} of rows, after the statistics",
            **shared,
            "arithmetic": f"{flop / 1e12:.3g} TFLOP in float64",
            "time": f"{rough_duration(_FIXED_ORDER * flop / (2 * dim) * rates.product / n_threads)} on {speed}",
        }
    work = _search_seconds(search, rates)
    if not search.both_ways:
        work = 1.1 * search.n_pairs * rates.product + search.n_items * _SECONDS_PER_ROW
    each = "each pair once" if search.both_ways else "queries against the gallery"
    return {
        "items": f"{counted(search.n_items, 'row')}, lists of {search.k}",
        "tasks": f"{counted(search.n_tasks, 'pair')} of blocks, then {plan.row_tasks} for averages",
        **shared,
        "arithmetic": f"{flop / 1e12:.3g} TFLOP in products, {each}",
        "time": f"{rough_duration(times * work / n_threads)} on {speed}",
    }


def _search_seconds(search: SearchPlan, rates: Rates) -> float:
    """Seconds of one thread for a search of items among themselves, and for the rows made of their lists."""
    merging = search.n_items * search.n_blocks * rates.settling
    return search.n_pairs * rates.both_ways + merging + search.n_items * _SECONDS_PER_ROW


R = TypeVar("R", "Rates", "ListRates")


def _as_fast(rates: R, factor: float) -> R:
    """Rates of a machine whose times are `factor` times as long."""
    return replace(rates, **{each.name: getattr(rates, each.name) * factor for each in fields(rates)})


def _tile_seconds(plan: Plan, rates: Rates, n_threads: int) -> float:
    """Time of the products of one pass plus a tenth for the rest."""
    # Some threads wait if the number of tasks is no multiple of theirs.
    uneven = -(-plan.n_tasks // n_threads) * n_threads / plan.n_tasks
    return 1.1 * rates.product * plan.query.n_rows * plan.gallery.n_rows * uneven / n_threads + _STARTING


def _list_seconds(plan: Plan, lists: ListRates, k: int, n_threads: int) -> float:
    """Time of neighbour lists: one for every block of the gallery, and their merges."""
    per_query = plan.n_gallery_blocks * lists.keeping + sum(plan.merged) * k * lists.merging
    return plan.query.n_rows * per_query / n_threads
