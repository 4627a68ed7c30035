"""A pickle read as data: its opcodes build plain values and descriptions of calls, and nothing is ever called.

A pickle is a program.  The interpreter below has no way to run one: a global is a pair of names, a call is a record of
what would be called, and dictionaries are lists of pairs, so that no key is hashed.  Every opcode adds at most one
value and takes at least one byte, hence memory is bounded by the length of the pickle, and so is time.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reid_dist.errors import StoreError


@dataclass(frozen=True, slots=True)
class Global:
    """A name of a module that a pickle refers to; never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Persistent:
    """An object that is kept outside the pickle, by the key under which the pickle refers to it."""

    key: Any


@dataclass(slots=True, eq=False)
class Entries:
    """A dictionary: pairs of key and value in the order in which they were set."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Call:
    """An object that some callable would make, its later state and entries, and what a reader made of it (`made`)."""

    callee: Any
    arguments: Any
    state: Any = None
    entries: Entries = field(default_factory=Entries)
    made: Any = None


@dataclass(frozen=True)
class Pickled:
    """What a pickle describes, and its number of opcodes: a file of torch.save needs few per entry."""

    value: Any
    n_opcodes: int


class _Machine:
    """Stack, marks and memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        # A mapping, not a list: the index of an entry is the file's choice, and a list would be that long.
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        # Not the list's own method: a value made up of what lies above a mark belongs on the list below it.
        self.stack.append(value)

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def take(self, count: int) -> tuple[Any, ...]:
        if count > len(self.stack):
            raise IndexError("the stack is empty")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return items

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        entries = target.entries if isinstance(target, Call) else target
        if isinstance(entries, Entries):
            entries.pairs.extend(zip(items[::2], items[1::2], strict=True))

    def call(self, callee: Any, arguments: Any) -> None:
        self.stack.append(Call(callee, arguments))

    def build(self) -> None:
        (state,) = self.take(1)
        if isinstance(self.stack[-1], Call):
            self.stack[-1].state = state

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def global_of(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a global is not named by texts")
        self.stack.append(Global(module, name))


def _entries(items: list[Any]) -> Entries:
    return Entries(list(zip(items[::2], items[1::2], strict=True)))


_LITERALS = (
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)


def _instance(machine: _Machine) -> None:
    callee, *arguments = machine.to_mark()
    machine.call(callee, tuple(arguments))


def _set_one(machine: _Machine) -> None:
    key, value = machine.take(2)
    machine.set_items([key, value])


_Step = Callable[[_Machine, Any], object]

_STEPS: dict[str, _Step] = {
    **dict.fromkeys(_LITERALS, lambda machine, argument: machine.push(argument)),
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    "NONE": lambda machine, argument: machine.push(None),
    "NEWTRUE": lambda machine, argument: machine.push(True),
    "NEWFALSE": lambda machine, argument: machine.push(False),
    "MARK": lambda machine, argument: machine.mark(),
    "POP": lambda machine, argument: machine.take(1) if machine.stack else machine.to_mark(),
    "POP_MARK": lambda machine, argument: machine.to_mark(),
    "DUP": lambda machine, argument: machine.push(machine.stack[-1]),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda machine, argument: machine.push([])),
    "EMPTY_TUPLE": lambda machine, argument: machine.push(()),
    "EMPTY_DICT": lambda machine, argument: machine.push(Entries()),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda machine, argument: machine.push(machine.to_mark())),
    "TUPLE": lambda machine, argument: machine.push(tuple(machine.to_mark())),
    "TUPLE1": lambda machine, argument: machine.push(machine.take(1)),
    "TUPLE2": lambda machine, argument: machine.push(machine.take(2)),
    "TUPLE3": lambda machine, argument: machine.push(machine.take(3)),
    "DICT": lambda machine, argument: machine.push(_entries(machine.to_mark())),
    "APPEND": lambda machine, argument: machine.extend(list(machine.take(1))),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda machine, argument: machine.extend(machine.to_mark())),
    "SETITEM": lambda machine, argument: _set_one(machine),
    "SETITEMS": lambda machine, argument: machine.set_items(machine.to_mark()),
    "GLOBAL": lambda machine, argument: machine.global_of(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, argument: machine.global_of(*machine.take(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda machine, argument: machine.call(*machine.take(2))),
    "NEWOBJ_EX": lambda machine, argument: machine.call(*machine.take(3)[:2]),
    "OBJ": lambda machine, argument: _instance(machine),
    "INST": lambda machine, argument: machine.call(Global(*argument.split(" ", 1)), tuple(machine.to_mark())),
    "BUILD": lambda machine, argument: machine.build(),
    "PERSID": lambda machine, argument: machine.push(Persistent(argument)),
    "BINPERSID": lambda machine, argument: machine.push(Persistent(*machine.take(1))),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda machine, argument: machine.put(argument)),
    "MEMOIZE": lambda machine, argument: machine.put(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, argument: machine.push(machine.memo[argument])),
}


def read_pickle(program: bytes, where: str) -> Pickled:
    """Read a pickle without running it."""
    machine, count = _Machine(), 0
    try:
        for opcode, argument, _ in pickletools.genops(program):
            count += 1
            if opcode.name == "STOP":
                break
            if opcode.name not in _STEPS:
                raise StoreError(
                    f"{where} cannot be read: its pickle holds {opcode.name}, which plain data do not need"
                )
            _STEPS[opcode.name](machine, argument)
        return Pickled(machine.take(1)[0], count)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{where} is damaged: the pickle in it breaks off after {count} opcodes ({error})") from None
