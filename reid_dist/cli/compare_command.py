"""``reid-dist compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reid_dist.cli.click_options import PATH, image_root_option, metrics_option, test_options
from reid_dist.cli.result_place import ResultPlace, result_options
from reid_dist.errors import ExitCode


@click.command("compare")
@click.argument("baseline", type=PATH)
@click.argument("candidate", type=PATH)
@metrics_option("compare")
@test_options
@click.option(
    "--minimum-effect",
    type=float,
    default=None,
    metavar="SHARE",
    help="Smallest change of interest. [default: 0.005, half a point]",
)
@click.option("--allow-different", is_flag=True, help="Compare even if protocol or gallery differ.")
@image_root_option
@result_options("comparison")
def command(baseline: Path, candidate: Path, image_root: str | None, place: ResultPlace, **options: Any) -> int:
    """Compare two runs query by query; the first is the baseline.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good.

    A metric is better or worse when the whole interval of the difference (candidate - baseline, paired, by identity)
    lies on one side of 0, a sign-flip test agrees, and the difference is at least --minimum-effect. It is the same when
    the interval lies within plus or minus --minimum-effect, and undecided otherwise. For EER, lower is better. The exit
    code is 4 if a metric is worse.

    \b
    Examples:
      reid-dist compare results/plain results/reranked
      reid-dist compare results/plain results/reranked --output results/compared.html
      reid-dist compare nightly.db#11:resnet50/market1501/plain nightly.db#latest:resnet50/market1501/plain
    """
    from reid_dist.errors import load_all
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.comparison import compare
    from reid_dist.reports.tables import ComparedRuns

    reports = load_all(load_report, (baseline, candidate))
    given = {name: value for name, value in options.items() if value not in (None, ())}
    comparison = compare(*reports, names=[str(baseline), str(candidate)], **given)
    place.deliver(ComparedRuns(comparison, reports, image_root))
    return ExitCode.REGRESSION if comparison.worse else ExitCode.DONE
