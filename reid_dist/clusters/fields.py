"""Fields of cluster files: each pattern admits what its use needs, and nothing with a meaning in a shell.

Batch systems get their options as lines of a script and as words of a command, so no field may hold a space, a quote,
a line break or any other sign of a shell, nor begin with a dash.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, Strict

from reid_dist.core.formatting import byte_size

_LETTERS = "kKMGTiB "
_UNITS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {
    prefix + unit: base**power
    for power, prefix in enumerate(("k", "M", "G", "T"), start=1)
    for unit, base in (("B", 1000), ("iB", 1024))
}
_BYTES["KiB"] = _BYTES.pop("kiB")

LEAST_MEMORY: Final = 192 << 20
"""Bytes of the smallest worker.

A worker takes 114 MiB after its start and 140 MiB after the smallest evaluation (measured on Linux, Python 3.11, with
1 and 8 threads).  Dask pauses a worker at 80 % of its limit and ends it at 95 %: with less, it would be ended and
started again for ever.
"""

# Allowed settings: numbers for time-outs, retries and memory.  Preloads, plugins, routes and environments would run
# code that the file names.
_SETTINGS = re.compile(
    r"distributed\.("
    r"scheduler\.(no-workers-timeout|allowed-failures|worker-ttl|work-stealing(-interval)?|worker-saturation"
    r"|idle-timeout|bandwidth|unknown-task-duration|default-task-durations)"
    r"|worker\.(memory\.(target|spill|pause|terminate|recent-to-old-time|max-spill|rebalance\.[a-z-]+)"
    r"|lifetime\.(duration|stagger|restart)|connections\.(outgoing|incoming)|transfer\.message-bytes-limit"
    r"|multiprocessing-method)"
    r"|comm\.(timeouts\.(connect|tcp)|retry\.(count|delay\.(min|max))|compression|shard|offload)"
    r"|adaptive\.(interval|target-duration|minimum|maximum|wait-count)"
    r"|client\.(heartbeat|scheduler-info-interval)"
    r"|deploy\.lost-worker-timeout"
    r"|admin\.(tick\.(interval|limit)|log-length)"
    r")"
)

# Form of the value of a setting, by the end of its name; all other values are free.
_TIMES = (
    r"timeout|worker-ttl|interval|target-duration|recent-to-old-time|lifetime\.(duration|stagger)|connect|tcp"
    r"|delay\.(min|max)|heartbeat|unknown-task-duration|tick\.limit"
)
_TIME = re.compile(r"\d+(\.\d+)? ?(ms|s|m|h|d|seconds?|minutes?|hours?|days?|milliseconds?)", re.IGNORECASE)
_VALUES: tuple[tuple[re.Pattern[str], str, Any], ...] = (
    (
        re.compile(rf".*[.-]({_TIMES})"),
        "a time such as 90s or 5 minutes",
        lambda value: value is None or _is_number(value, 1e9) or (isinstance(value, str) and _TIME.fullmatch(value)),
    ),
    (
        re.compile(r".*\.memory\.(target|spill|pause|terminate)"),
        "a share from 0 to 1, or false",
        lambda value: value is False or _is_number(value, 1.0),
    ),
    (
        re.compile(r".*\.(allowed-failures|count|wait-count|outgoing|incoming|minimum|log-length)"),
        "a whole number",
        lambda value: type(value) is int and value >= 0,
    ),
    (
        re.compile(r".*\.multiprocessing-method"),
        "spawn, fork or forkserver",
        lambda value: value in ("spawn", "fork", "forkserver"),
    ),
)


def _is_number(value: Any, largest: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= largest


def _matching(pattern: str, wanted: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f"should be {wanted}")
        return text

    return AfterValidator(check)


def _settings(found: dict[str, Any]) -> dict[str, Any]:
    """Refuse settings that could run code, and values that Dask cannot read."""
    for name, value in found.items():
        if _SETTINGS.fullmatch(name) is None:
            raise ValueError(
                f"{name} should be a Dask setting of time-outs, memory, lifetime, retries or stealing, such as "
                "distributed.scheduler.no-workers-timeout; others could run code and are not taken"
            )
        for pattern, wanted, fits in _VALUES:
            if pattern.fullmatch(name) and not fits(value):
                raise ValueError(f"{name} should be {wanted}")
    return found


def memory_bytes(memory: str) -> int:
    """Bytes of a `Memory`."""
    number, unit = memory.rstrip(_LETTERS), memory.lstrip("0123456789. ")
    return int(float(number) * _BYTES[unit])


def seconds(time: str) -> int:
    """Seconds of a `Walltime` or a `Duration`."""
    if ":" not in time:
        return int(time[:-1]) * _UNITS[time[-1]]
    hours, minutes, rest = (int(part) for part in time.split(":"))
    return 3600 * hours + 60 * minutes + rest


def _enough(memory: str) -> str:
    if memory_bytes(memory) < LEAST_MEMORY:
        raise ValueError(f"should be at least {byte_size(LEAST_MEMORY)}, which a worker needs before any work")
    return memory


Name = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,127}", "a name of letters, digits and _ . @ + -")]
HostName = Annotated[
    str,
    _matching(
        r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*",
        "a host name or an IPv4 address",
    ),
]
Interface = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}", "a network interface such as ib0")]
Memory = Annotated[
    str,
    _matching(r"\d+(\.\d+)? ?(kB|KiB|[MGT]i?B)", "a size such as 8GiB"),
    AfterValidator(_enough),
]
Walltime = Annotated[str, _matching(r"\d{1,3}:[0-5]\d:[0-5]\d", "a time as HH:MM:SS")]
Duration = Annotated[str, _matching(r"[1-9]\d{0,6}[smh]", "a time such as 90s, 55m or 4h")]
FilePath = Annotated[
    str,
    _matching(r"(~/|/)?[A-Za-z0-9_.][A-Za-z0-9_.@+/-]*", "a path of letters, digits and _ . @ + - /"),
]
ModuleName = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}", "a module such as python/3.12")]
ResourceSpec = Annotated[
    str,
    _matching(r"[A-Za-z0-9_.]+=[A-Za-z0-9_.]+(,[A-Za-z0-9_.]+=[A-Za-z0-9_.]+)*", "resources such as h_vmem=8G,gpu=0"),
]
DaskSettings = Annotated[dict[str, str | int | float | bool | None], AfterValidator(_settings)]
# In YAML, true is no number and "2" is text.
Count = Annotated[int, Strict(), Field(ge=1)]
Flag = Annotated[bool, Strict()]
# Seconds; more than a month is taken for a mistake.
Timeout = Annotated[float, Strict(), Field(gt=0, le=31 * 86_400, allow_inf_nan=False)]
