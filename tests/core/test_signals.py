"""Signals of a process that is one command: none is lost, each sets the exit code, and a second one ends it at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from reid_dist.cli import main
from reid_dist.core import signals

# The command is replaced: what is tested is the process around it.
_PROGRAM = """
import atexit, os, signal, sys, tempfile, threading, time
from reid_dist.core import signals
from reid_dist.cli import group, main
from reid_dist.cli.ending import make_temporary_folder

def work(ctx):
    {work}

group.click.Group.invoke = lambda self, ctx: work(ctx)
{before}
sys.argv = ["reid-dist", "list"]
main()
"""
_SEND = "os.kill(os.getpid(), signal.{name})"
_CAUGHT = f"""
    try:
        {_SEND.format(name="SIGINT")}
        time.sleep(20)
    except BaseException:
        {{then}}
    time.sleep(20)
"""


@pytest.fixture(autouse=True)
def heeded():
    """What this process ignores, as one in the background may, the command would ignore."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals.NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Ended:
    def __init__(self, folder: Path, work: str, before: str = "") -> None:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(work=work, before=before)],
            cwd=folder,
            env={"PATH": "", "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.code, self.seconds = done.returncode, time.monotonic() - began
        self.lines, self.out = done.stderr.splitlines(), done.stdout


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("name", "line", "code"),
    [
        ("SIGINT", "Interrupted.", 130),
        ("SIGTERM", "Ended by SIGTERM.", 143),
        ("SIGHUP", "Ended by SIGHUP.", 129),
    ],
)
def test_one_line_and_the_code_of_shells(tmp_path: Path, name: str, line: str, code: int) -> None:
    ended = Ended(tmp_path, f"{_SEND.format(name=name)}; time.sleep(20)")
    assert (ended.code, ended.lines) == (code, [line])


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("in_class", [False, True])
def test_a_signal_while_modules_are_imported(tmp_path: Path, events: bool, in_class: bool) -> None:
    """Python 3.11 wraps what is raised while the attributes of a class are named."""
    trigger = "type('Owner', (), {'attribute': Attribute()})" if in_class else "Attribute().__set_name__()"
    program = (
        "import os, signal, sys\n"
        "from reid_dist.cli import main\n"
        "class Attribute:\n"
        "    def __set_name__(self, *_):\n"
        f"        {_SEND.format(name='SIGTERM')}\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        f"            {trigger}\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"sys.argv = ['reid-dist', 'list'{', ' + repr('--log-json') if events else ''}]\n"
        "main()\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (143, "")
    (line,) = done.stderr.splitlines()
    if events:
        event = json.loads(line)
        assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
        facts = {"event": "error", "message": "Ended by SIGTERM.", "kind": "Interrupted", "exit_code": 143}
        assert event == facts
    else:
        assert line == "Ended by SIGTERM."


def test_an_exception_that_a_library_catches_is_raised_again(tmp_path: Path) -> None:
    ended = Ended(tmp_path, _CAUGHT.format(then="pass"))
    assert (ended.code, ended.lines) == (130, ["Interrupted."])
    assert ended.seconds < 15


def test_an_exception_that_an_extension_module_prints_is_raised_again(tmp_path: Path) -> None:
    """As ``import_array`` of NumPy's C interface does: PyErr_Print keeps the exception and calls this hook."""
    printed = "kind, sys.last_value, trace = sys.exc_info(); sys.excepthook(kind, sys.last_value, trace)"
    ended = Ended(tmp_path, _CAUGHT.format(then=printed))
    assert (ended.code, ended.lines) == (130, ["Interrupted."])
    assert ended.seconds < 9


def test_an_exception_that_a_destructor_loses_is_raised_again(tmp_path: Path) -> None:
    work = "Dies(); time.sleep(20)"
    dies = f"class Dies:\n    def __del__(self):\n        {_SEND.format(name='SIGTERM')}\n        time.sleep(0.1)\n"
    ended = Ended(tmp_path, work, dies)
    assert (ended.code, ended.lines) == (143, ["Ended by SIGTERM."])
    assert ended.seconds < 15


def test_a_signal_that_another_thread_takes_wakes_the_main_thread(tmp_path: Path) -> None:
    thread = "threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()"
    ended = Ended(tmp_path, f"{thread}; threading.Event().wait(20)")
    assert (ended.code, ended.lines) == (143, ["Ended by SIGTERM."])
    assert ended.seconds < 15


# What connections to a scheduler leave behind that the client did not come to look at; logged when it is deallocated.
_UNSEEN = """
import asyncio, gc
loop = asyncio.new_event_loop()
async def lost():
    raise OSError("lost")
def leave_unseen():
    loop.create_task(lost())
    loop.run_until_complete(asyncio.sleep(0))
    gc.collect()
"""


def test_an_exception_of_a_task_that_is_never_retrieved_is_not_shown(tmp_path: Path) -> None:
    ended = Ended(tmp_path, _CAUGHT.format(then="leave_unseen(); raise"), _UNSEEN)
    assert (ended.code, ended.lines) == (130, ["Interrupted."])


def test_without_a_signal_such_an_exception_is_shown(tmp_path: Path) -> None:
    ended = Ended(tmp_path, "leave_unseen()", _UNSEEN)
    assert ended.code == 0
    assert ended.lines[0] == "Task exception was never retrieved"


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    then = f"time.sleep(0.4); {_SEND.format(name='SIGINT')}; time.sleep(20)"
    ended = Ended(tmp_path, _CAUGHT.format(then=then))
    assert (ended.code, ended.lines) == (130, ["Interrupted; ended at once by a second signal"])
    assert ended.seconds < 15


def test_the_same_signal_twice_at_a_time_is_one(tmp_path: Path) -> None:
    """So do programs that send it to a process and to its group."""
    then = f"{_SEND.format(name='SIGINT')}; time.sleep(0.6); print('closed'); raise"
    ended = Ended(tmp_path, _CAUGHT.format(then=then))
    assert (ended.code, ended.lines, ended.out) == (130, ["Interrupted."], "closed\n")


def test_work_that_does_not_come_to_an_end_is_ended(tmp_path: Path) -> None:
    ended = Ended(tmp_path, _CAUGHT.format(then="time.sleep(20)"), "signals._ENDS_WITHIN_S = 0.5")
    assert ended.code == 130
    assert ended.lines == ["Interrupted; ended after 0.5 s, since the work in hand did not end"]
    assert ended.seconds < 15


def test_a_signal_after_the_work_sets_the_code_too(tmp_path: Path) -> None:
    ended = Ended(tmp_path, f"print('done'); atexit.register(lambda: {_SEND.format(name='SIGTERM')})")
    assert (ended.code, ended.out) == (143, "done\n")
    assert ended.lines == ["Ended by SIGTERM; the command had just ended"]


def test_what_an_interrupted_command_breaks_with_is_not_reported(tmp_path: Path) -> None:
    ended = Ended(tmp_path, _CAUGHT.format(then="raise OSError('gone')"))
    assert (ended.code, ended.lines) == (130, ["Interrupted."])


def test_a_signal_that_is_ignored_from_the_beginning_stays_ignored(tmp_path: Path) -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ended = Ended(tmp_path, f"{_SEND.format(name='SIGHUP')}; print('done')")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (ended.code, ended.lines, ended.out) == (0, [], "done\n")


@pytest.mark.parametrize("then", ["", f"; {_SEND.format(name='SIGTERM')}; time.sleep(20)"])
def test_temporary_files_are_gone(tmp_path: Path, then: str) -> None:
    work = f"make_temporary_folder(); print(tempfile.mkdtemp()){then}"
    ended = Ended(tmp_path, work)
    assert ended.code == (143 if then else 0)
    assert Path(ended.out.splitlines()[0]).parent.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_temporary_directories_are_tried(tmp_path: Path) -> None:
    """The standard library writes a file in each, and removes it only once it is open."""
    send = "os.open = lambda *words: (opened(*words), os.kill(os.getpid(), signal.SIGTERM))[0]"
    ended = Ended(tmp_path, "make_temporary_folder(); time.sleep(20)", f"opened = os.open\n{send}")
    assert (ended.code, ended.lines) == (143, ["Ended by SIGTERM."])
    assert list(tmp_path.iterdir()) == []


def test_a_caller_in_python_keeps_its_signals() -> None:
    before = [signal.getsignal(number) for number in signals.NUMBERS]
    with pytest.raises(SystemExit):
        main(["--version"])
    assert [signal.getsignal(number) for number in signals.NUMBERS] == before
    assert signals.received() is None
