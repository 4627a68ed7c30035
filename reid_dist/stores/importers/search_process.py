"""The process of `reid_dist.stores.importers.image_names.searching`: it searches texts, each block in bounded time.

Standard library alone: it is started as a program.  Messages are lengths of eight bytes and what `marshal` makes of
plain values, from the process that started this one and to it.
"""

from __future__ import annotations

import contextlib
import marshal
import re
import signal
import sys
from typing import IO, Any


class _Late(Exception):  # noqa: N818
    """The time for a block is over."""


def send(stream: IO[bytes], value: Any) -> None:
    """Write one message."""
    data = marshal.dumps(value)
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; None at the end of the stream."""
    length = int.from_bytes(stream.read(8), "little")
    return marshal.loads(stream.read(length)) if length else None  # noqa: S302


def _end_block(*_: object) -> None:
    raise _Late


def _serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer each block of texts with the groups of each, None for a text that does not fit; or with the late text."""
    pattern, groups, limit_s = receive(source)
    search = re.compile(pattern).search
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    while (texts := receive(source)) is not None:
        place, found = 0, []
        try:
            signal.signal(signal.SIGPROF, _end_block)
            # Of computing, not of waiting.  The expression engine looks for signals while it tries.
            signal.setitimer(signal.ITIMER_PROF, limit_s)
            for place, text in enumerate(texts):  # noqa: B007
                match = search(text)
                found.append(match and match.group(*groups, 0))
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
        except _Late:
            send(sink, place)
        else:
            send(sink, found)


if __name__ == "__main__":
    # The other process may end first.
    with contextlib.suppress(BrokenPipeError):
        _serve(sys.stdin.buffer, sys.stdout.buffer)
