"""Work of ``reid-dist nightly`` after its options are parsed."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from reid_dist.cli.history_command import opened_for_writing
from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.progress import notify, rows_progress, stages
from reid_dist.clusters import ClusterConfig, ExistingCluster, LocalCluster, Threads, cluster_size
from reid_dist.core.credentials import without_controls
from reid_dist.core.environment import describe_environment
from reid_dist.core.formatting import duration, first_few
from reid_dist.errors import InputError
from reid_dist.nightly.delivery import deliver_night, recent_runs, refuse_folder, verdict_json
from reid_dist.nightly.history.history_values import Entry, Outcome, Run, State
from reid_dist.nightly.night_tables import jobs_table
from reid_dist.nightly.outcomes import outcome, ranked, removed_jobs, streak
from reid_dist.nightly.running import NightContext, run_suite
from reid_dist.nightly.suite import PlannedJob, Suite, read_suite
from reid_dist.nightly.wording import (
    SIGNS,
    exit_meaning,
    finding_text,
    headline,
    lasting_text,
    removed_text,
    sign_of_finding,
)
from reid_dist.reports.tabular.terminal import plain_text

# Seconds that a night waits for locks: the export of years of nights reads for half a minute.
_PATIENCE = 300.0

_COLUMNS = 300


def list_jobs(suite_file: Path, only: Sequence[str]) -> None:
    """Print the jobs of a suite whose names match a pattern; without patterns all."""
    for planned in _chosen(read_suite(suite_file), only):
        labels = ", ".join(f"{name} {value}" for name, value in planned.labels.items())
        click.echo(without_controls(planned.name + (f"   {labels}" if labels else "")))


def run_night(
    suite_file: Path,
    history_file: Path,
    cluster: ClusterConfig,
    *,
    output: Path | None,
    only: Sequence[str],
    workspace: str | None,
    mlflow_uri: str | None,
    as_json: bool,
    allow_incomparable: bool,
) -> int:
    """Run a night, write its files, print its findings, and return the exit code.

    `output` is the directory of the page, by default the history without its suffix; `workspace` is for what jobs
    share, by default a directory in `output`; `mlflow_uri` is a server to log the night to.
    """
    # Invalid input is reported before anything is opened or started.
    suite = read_suite(suite_file)
    jobs = _chosen(suite, only)
    refuse_unobservable(cluster, None)
    if mlflow_uri is not None:
        from reid_dist.nightly.mlflow_export import import_mlflow

        import_mlflow()
    folder = refuse_folder(_default_folder(history_file) if output is None else output, suite.suite)
    context = NightContext(
        connect=lambda: observed_cluster(cluster, None),
        machine=_machine(cluster),
        stages=stages,
        rows=rows_progress,
        begun=_report_begin,
        ended=_report_end,
    )
    with opened_for_writing(history_file, create=True, timeout=_PATIENCE) as history:
        run = run_suite(
            suite, jobs, history, folder, context, workspace=workspace, allow_incomparable=allow_incomparable
        )
        runs = recent_runs(run, history, folder)
    # Before the page, which cannot be written to a full disk.
    found = verdict_json(runs) if as_json else without_controls("\n".join([*_lines(run, runs[:-1]), ""]))
    click.echo(found, nl=False)
    deliver_night(runs, folder)
    if not as_json:
        click.echo(f"\nwritten to {folder}: index.html, summary.md, verdict.json")
    if mlflow_uri is not None:
        from reid_dist.nightly.mlflow_export import export_run

        # Last: an unreachable server must not hide the findings.
        export_run(run, tracking_uri=mlflow_uri, experiment=suite.suite)
    return run.exit_code or 0


def _chosen(suite: Suite, only: Sequence[str]) -> list[PlannedJob]:
    jobs = list(suite.planned())
    if not only:
        return jobs
    unused = [pattern for pattern in only if not any(fnmatch.fnmatchcase(each.name, pattern) for each in jobs)]
    if unused:
        names = first_few([each.name for each in jobs], 10)
        raise InputError(f"--only {unused[0]!r} matches no job of suite {suite.suite}; its jobs: {names}")
    return [each for each in jobs if any(fnmatch.fnmatchcase(each.name, pattern) for pattern in only)]


def _default_folder(history_file: Path) -> Path:
    return history_file.with_suffix("") if history_file.suffix else history_file.with_name(f"{history_file.name}-pages")


def _machine(cluster: ClusterConfig) -> dict[str, Any]:
    """Return what times depend on beside the job."""
    if isinstance(cluster, ExistingCluster):
        # Its size is known only once it is reached, and may change from night to night.
        return {"cluster": cluster.kind, "scheduler": cluster.address or cluster.scheduler_file}
    size = cluster_size(cluster)
    here: dict[str, Any] = {}
    if isinstance(cluster, LocalCluster | Threads):
        environment = describe_environment()
        here = {name: environment[name] for name in ("cpu", "cores")}
    return {"cluster": cluster.kind, "workers": size.n_workers, "threads": size.n_threads, **here}


def _report_begin(number: int, total: int, name: str) -> None:
    notify("job_started", f"job {number}/{total}: {name}", job=name, number=number, total=total)


def _report_end(number: int, total: int, entry: Entry) -> None:
    what = duration(entry.seconds) if entry.seconds is not None else entry.reason
    verdicts = {finding.gate: finding.verdict for finding in entry.findings}
    alarms = [finding.alarm for finding in entry.findings if finding.alarm]
    words = ", ".join([what, *(f"{each.gate} {sign_of_finding(each).words}" for each in entry.findings)])
    facts = {"seconds": entry.seconds, "reason": entry.reason, "verdicts": verdicts, "alarms": alarms}
    line = without_controls(f"job {number}/{total}: {entry.name} {entry.state}, {words}")
    notify("job_ended", line, job=entry.name, number=number, total=total, state=entry.state, **facts)


def _lines(run: Run, earlier: Sequence[Run]) -> list[str]:
    """Return the night as plain text: a headline, a line for each job, the most urgent first, and reasons."""
    first = headline(run, earlier)
    # One line a job, however long its name is.
    table = plain_text(jobs_table(run, earlier), width=_COLUMNS).rstrip().splitlines()
    return [
        f"run {run.number} of suite {run.suite}: {first.title}",
        f"exit code {run.exit_code or 0}: {exit_meaning(run.exit_code or 0)}",
        *(["", first.quiet] if first.quiet else []),
        *(["", *table] if table else []),
        *(["", *reasons] if (reasons := [*_reasons(run, earlier)]) else []),
    ]


def _reasons(run: Run, earlier: Sequence[Run]) -> Iterator[str]:
    """Yield the reasons of all outcomes that are to be looked at, and the output of failed preparations."""
    for entry in ranked(run):
        lasting = streak(entry, reversed(earlier))
        for_nights = "" if lasting is None else f" {lasting_text(lasting)}"
        if entry.state != State.DONE:
            yield f"{entry.name}: {SIGNS[outcome(entry)].words}{for_nights}: {entry.reason}"
            continue
        for finding in entry.findings:
            if finding.is_regression or finding.is_uncompared or finding.verdict in (Outcome.BETTER, Outcome.STALE):
                words = f"{finding.gate} {sign_of_finding(finding).words}{for_nights}"
                yield f"{entry.name}: {words}: {finding_text(finding)}"
                for_nights = ""
    # Jobs of one preparation have one output.
    findings = (finding for entry in run.entries for finding in entry.findings)
    for output, tail in {each.facts["output"]: each.facts["tail"] for each in findings if "tail" in each.facts}.items():
        yield f"\n{output} ends with:"
        yield from (f"  {line}" for line in tail)
    yield from (f"{name}: {removed_text(last)}" for name, last in removed_jobs(run, earlier).items())
