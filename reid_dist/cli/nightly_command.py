"""``reid-dist nightly``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reid_dist.cli.click_options import PATH, choose_cluster, events_option, local_options


@click.command("nightly")
@click.argument("suite", type=PATH)
@click.option(
    "--history",
    "history_file",
    type=PATH,
    metavar="FILE",
    help="SQLite file of all nights; created on the first night. If it is missing later, the night is refused.  "
    "[required unless --list]",
)
@click.option(
    "--output",
    type=PATH,
    metavar="DIR",
    help="Directory of the page and of the reports of all nights. Default: FILE without its suffix.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Run only jobs whose model/dataset/job matches, such as 'resnet50/*/plain'. Repeatable.",
)
@click.option("--list", "only_listed", is_flag=True, help="Print the jobs and run none.")
@local_options
@click.option(
    "--workspace",
    metavar="URI",
    help="Directory for data that jobs share while they run; all workers must see it. Default: DIR/workspace.",
)
@click.option("--mlflow", "mlflow_uri", metavar="URI", help="Also log the night to this MLflow tracking server.")
@click.option("--allow-incomparable", is_flag=True, help="Exit with 0 instead of 5 if a job could not be compared.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, and nothing else.")
@events_option
def command(
    suite: Path,
    history_file: Path | None,
    only: tuple[str, ...],
    only_listed: bool,
    cluster_file: Path | None,
    workers: int | None,
    **options: Any,
) -> int:
    """Run every job of a SUITE file, compare it with earlier nights, and write the page.

    A failed job is recorded, and the others continue. Exit code 3: a job failed, its features could not be made, or new
    features were expected but did not appear. 4: no job failed, but one became worse in accuracy, time or memory, or
    its result changed although inputs and job are identical. 5: none of these, but a job could not be compared with its
    baseline, for instance because it was changed.

    \b
    Examples:
      reid-dist nightly pipelines/nightly_market1501.yaml --history nightly.db
      reid-dist nightly pipelines/nightly.yaml --history other.db --cluster cluster_configs/slurm.yaml
      reid-dist nightly pipelines/nightly_market1501.yaml --only 'baseline/*/plain' --list
      reid-dist history show nightly.db
    """
    if only_listed:
        from reid_dist.cli.night import list_jobs

        list_jobs(suite, only)
        return 0
    if history_file is None:
        raise click.UsageError("Missing option '--history'.")
    cluster = choose_cluster(cluster_file, workers)
    from reid_dist.cli.night import run_night

    return run_night(suite, history_file, cluster, only=only, **options)
