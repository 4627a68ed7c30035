"""The commands of ``reid-dist``, and the run of one of them.

Only `click` is imported until a command runs, for a fast ``--help``: Dask, Zarr and Numba take a second.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import click

import reid_dist.core.signals as signals
from reid_dist._version import __version__
from reid_dist.cli.ending import Ending, ending_of, interruption, make_temporary_folder, report_interruption
from reid_dist.cli.events import OPTION, EventLog, logged
from reid_dist.core.address_space import address_space, require_address_space
from reid_dist.core.credentials import without_controls, without_credentials
from reid_dist.core.formatting import first_few
from reid_dist.errors import ExitCode, ReidDistError

_COMMANDS = {
    "demo": "Generate a small synthetic data set, evaluate it and write the reports.",
    "ingest": "Read a feature file and write feature stores.",
    "append": "Append the rows of a feature file to a feature store.",
    "check": "Verify feature stores: checksums, NaNs, zero and duplicate rows, labels.",
    "evaluate": "Evaluate a query store against a gallery store.",
    "run": "Run a job from a pipeline file.",
    "plan": "Show tiles, memory and estimated time; fail if the job does not fit.",
    "compare": "Compare two runs on the same queries.",
    "table": "Put many runs into one table, with the significance of their differences.",
    "plot": "Draw a curve of one or more runs as a figure for a paper.",
    "thresholds": "Choose distance thresholds and see their error rates.",
    "conventions": "Find the convention behind a published number.",
    "average": "Average runs of one benchmark; print mean, spread and interval.",
    "pairs": "Verify listed pairs of rows: EER, TAR at given FAR, accuracy.",
    "pool": "Average the rows of each tracklet (or identity and camera).",
    "splits": "Evaluate on galleries drawn at random; print mean and spread.",
    "sweep": "Evaluate an expansion or a re-ranking over its parameters.",
    "report": "Verify finished runs, print their tables and rewrite their pages.",
    "browse": "Look at the ranked lists of a run in a web browser.",
    "history": "Show, export, accept or prune nightly results.",
    "nightly": "Run a suite, compare it with earlier nights, write the page.",
    "compile": "Compile all kernels before the first run, for instance in a container image.",
    "list": "List metrics, protocols, distances, re-rankers, expansions, poolings, formats, layouts or benchmarks.",
    "schema": "Print the JSON Schema of pipeline, suite or cluster files.",
}

# Addresses that the interpreter and numpy take, as measured, and more for each thread of BLAS.
_ROOM = 64 << 20
_ROOM_OF_THREAD = 40 << 20

_DEFECT = 1
# Commands that an error names.
_MOST_NAMED = 5

_NAME = "reid-dist"
# Set by shells that complete words.
_COMPLETION = "_REID_DIST_COMPLETE"


def _require_room() -> None:
    """Refuse a command where libraries would find no room, and end the process."""
    if address_space() is not None:
        from reid_dist.core.environment import usable_cores

        require_address_space(_ROOM + _ROOM_OF_THREAD * usable_cores(), "numpy and its BLAS library")


class _LazyGroup(click.Group):
    """Imports a command's module when the command runs; the list of commands needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        # Not `list(...)`: once that command has run, `list` is a module of this package.
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        _require_room()
        make_temporary_folder()
        command: click.Command = importlib.import_module(f"reid_dist.cli.{cmd_name}_command").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in _COMMANDS:
            near = difflib.get_close_matches(name, _COMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])


_EXIT_CODES = "; ".join(f"{code} {code.meaning}" for code in ExitCode)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit codes: {_EXIT_CODES}; 143 ended by SIGTERM.",
)
@click.version_option(__version__, prog_name=_NAME)
def _group() -> None:
    """Exact, streaming, distributed evaluation of person and vehicle re-identification.

    \b
    Start here:
      reid-dist demo
      reid-dist evaluate pytorch_result.mat --output results/market
      reid-dist compare results/baseline results/market

    """


def run_command(words: list[str]) -> int:
    """Run a command, given by the words after ``reid-dist``, and return its exit code."""
    # Importing Numba, Dask and Zarr makes some 300,000 permanent objects.  At the default thresholds, the garbage
    # collector visits them repeatedly, which takes a tenth of the time of the imports.
    gc.set_threshold(500_000, 20, 100)
    # Found before options are parsed, as a wrong option must be an event, too.
    if OPTION in words:
        with logged() as log:
            return _run_with_events(words, log)
    return _run(words, _say_error)


def _run(words: list[str], say_error: Callable[[Exception, int], None]) -> int:
    """Run the command and return its exit code; errors of usage, input or run are printed."""
    try:
        outcome = _invoke(words)
        # A full disk or a closed pipe may only be detected here.
        if sys.stdout is not None:
            sys.stdout.flush()
        ending = Ending(outcome if isinstance(outcome, int) else 0)
        # From here on, a signal changes the message and the exit code only.
        signals.stop_raising()
    except (Exception, KeyboardInterrupt) as error:
        signals.stop_raising()
        found = ending_of(error)
        if found is None:
            if signals.received() is None:
                raise
            # Errors while a signal ends the command are its consequences.
            found = interruption()
        ending = found
    if signals.received() is not None:
        if ending.error is None or ending.code != signals.exit_code(0):
            ending = interruption(signals.kept())
        report_interruption(ending)
    elif ending.error is not None:
        say_error(ending.error, ending.code)
    return ending.code


def _invoke(words: list[str]) -> Any:
    """Have click run the command, and return its result."""
    if _COMPLETION in os.environ:
        _group.main(args=words, prog_name=_NAME, complete_var=_COMPLETION)
    try:
        # Not by `main`, which writes an empty line when a signal comes.  Commands get the words, too: a report holds
        # the command that made it.
        with _group.make_context(_NAME, [*words], obj=tuple(words)) as context:
            return _group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code


def _lines_of(error: Exception) -> list[str]:
    """Message of an error, and its details."""
    if isinstance(error, ReidDistError):
        return [str(error), *error.details]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        usage = [line.strip() for line in error.ctx.get_usage().splitlines()]
        elsewhere = _elsewhere(error.option_name) if isinstance(error, click.NoSuchOption) else []
        return [error.format_message(), *elsewhere, *usage, f"Help: {error.ctx.command_path} --help"]
    return [error.format_message() if isinstance(error, click.ClickException) else str(error)]


def _elsewhere(option: str) -> list[str]:
    """One line on the commands that have an option; none where no command has it."""
    context = click.Context(_group)
    commands = {name: _group.get_command(context, name) for name in _group.list_commands(context)}
    having = [name for name, each in commands.items() if each and any(option in known.opts for known in each.params)]
    return [f"{option} is an option of: {first_few(having, _MOST_NAMED)}"] if having else []


def _say_error(error: Exception, code: int) -> None:
    """Print an error on standard error, its details on indented lines."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        text = error.format_message()
    else:
        text = "\n  ".join(_lines_of(error))
        text = text if code == ExitCode.INTERRUPTED else f"Error: {text}"
    with contextlib.suppress(OSError):
        click.echo(without_controls(without_credentials(text)), err=True)


def _run_with_events(words: list[str], log: EventLog) -> int:
    """Run the command between two events, with an event for an error."""
    began = time.monotonic()

    def write_error(error: Exception, code: int) -> None:
        message, *details = map(without_credentials, _lines_of(error))
        facts = {"details": details} if details else {}
        log.write("error", message=message, **facts, kind=type(error).__name__, exit_code=code)

    log.write("started", command=words[0], version=__version__)
    try:
        code = _run(words, write_error)
    except Exception as error:
        # A defect of the package.  Standard error has events alone: the traceback is in one.
        code = _DEFECT
        log.write("error", message=repr(error), kind="defect", exit_code=code, traceback=traceback.format_exc())
    # Lines that were written earlier come before the last event.
    log.catch_up()
    log.write("ended", exit_code=code, seconds=round(time.monotonic() - began, 3))
    return code
