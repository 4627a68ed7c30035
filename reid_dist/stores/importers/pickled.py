"""A pickle read as data: its opcodes build plain values and descriptions of calls, and nothing is ever called.

A pickle is a program.  The interpreter below has no way to run one: a global is a pair of names, a call is a record of
what would be called, and dictionaries are lists of pairs, so that no key is hashed.  Every opcode adds at most one
value and takes at least one byte, hence memory is bounded by the length of the pickle, and so is time.  Tensors and
numpy arrays are made of the records of their calls.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    "BUILD": lambda machine, argument: machine.build(),
    "BINPERSID": lambda machine, argument: machine.push(Persistent(*machine.take(1))),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda machine, argument: machine.put(argument)),
    "MEMOIZE": lambda machine, argument: machine.put(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, argument: machine.push(machine.memo[argument])),
}


def read_pickle(program: bytes, where: str) -> tuple[Any, int]:
    """Read what a pickle describes, without running it, and count its opcodes."""
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
        return machine.take(1)[0], count
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{where} is damaged: the pickle in it breaks off after {count} opcodes ({error})") from None


BFLOAT16 = "bfloat16"
_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": BFLOAT16,
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "u1",
}
_REBUILD_TENSOR = ("torch._utils", "_rebuild_tensor_v2")
_REBUILD_PARAMETER = ("torch._utils", "_rebuild_parameter")
_NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMPY_BUFFERS = ("numpy.core.numeric", "numpy._core.numeric")
_BYTES = (("builtins", "bytes"), ("__builtin__", "bytes"))
_ENCODE = ("_codecs", "encode")
_DTYPE = re.compile(r"[<>|=]?(?:[iu][1248]|f[248]|b1|[US][0-9]{1,6})")
_NEVER = "is never loaded; save tensors, arrays, lists and dictionaries of them with torch.save"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of the member ``data/KEY`` of the archive, of items of the dtype `code`, from one on; strides in items."""

    code: str
    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A value that is not read, with the reason."""

    reason: str


def interpret(value: Any) -> Any:
    """Make a `Tensor`, array, number or `Refused` of what a pickle describes as a call; return other values."""
    if isinstance(value, Global):
        return Refused(f"{value}, which {_NEVER}")
    if not isinstance(value, Call):
        return value
    if value.made is None:
        value.made = _interpreted(value)
    return value.made


def _interpreted(value: Call) -> Any:
    name = _named(value.callee)
    if name == _REBUILD_PARAMETER and _is_tuple(value.arguments, 1):
        value, name = value.arguments[0], _named(getattr(value.arguments[0], "callee", None))
    if name == _REBUILD_TENSOR:
        return _tensor(value.arguments)
    if name == ("collections", "OrderedDict"):
        return value.entries
    if name[0] in _NUMPY_MODULES and name[1] == "_reconstruct":
        return _array(value.state)
    if name[0] in _NUMPY_MODULES and name[1] == "scalar":
        return _scalar(value.arguments)
    if name[0] in _NUMPY_BUFFERS and name[1] == "_frombuffer" and _is_tuple(value.arguments, 4):
        data, dtype, shape, order = value.arguments
        return _array((None, shape, dtype, order == "F", data))
    return Refused(f"of {'.'.join(name)}, which {_NEVER}" if name[0] else "of no plain type")


def _named(callee: Any) -> tuple[str, str]:
    return (callee.module, callee.name) if isinstance(callee, Global) else ("", "")


def _is_tuple(value: Any, shortest: int) -> bool:
    return isinstance(value, tuple) and len(value) >= shortest


def _are_counts(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(value) is int and 0 <= value < 2**62 for value in values)


def _tensor(arguments: Any) -> Tensor:
    if not _is_tuple(arguments, 4) or not isinstance(arguments[0], Persistent):
        raise StoreError("the file describes an impossible tensor")
    _, offset, shape, strides = arguments[:4]
    # A shape may itself be an object of torch.Size, whose one argument is the tuple.
    shape = shape.arguments[0] if isinstance(shape, Call) and _is_tuple(shape.arguments, 1) else shape
    if not _are_counts(shape) or not _are_counts(strides) or not _are_counts((offset,)):
        raise StoreError("the file describes an impossible tensor")
    return Tensor(*_storage(arguments[0].key), offset, shape, strides)


def _storage(key: Any) -> tuple[str, str]:
    if _is_tuple(key, 3) and isinstance(key[1], Global) and isinstance(key[2], str):
        kind, (module, name), member = key[0], _named(key[1]), key[2]
        if isinstance(kind, str) and kind == "storage" and module == "torch" and name in _STORAGES:
            return _STORAGES[name], member
    raise StoreError("the file describes an impossible storage")


def _bytes(value: Any) -> bytes | None:
    """Bytes as protocols before 3 write them: by a name, or as text to be encoded."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Call):
        if _named(value.callee) in _BYTES and value.arguments == ():
            return b""
        if _named(value.callee) == _ENCODE and _is_tuple(value.arguments, 1) and isinstance(value.arguments[0], str):
            try:
                return value.arguments[0].encode("latin-1")
            except UnicodeEncodeError:
                return None
    return None


def _dtype(value: Any) -> np.dtype[Any] | Refused:
    """The plain dtype that a call of ``numpy.dtype`` makes."""
    if not isinstance(value, Call) or _named(value.callee) != ("numpy", "dtype") or not _is_tuple(value.arguments, 1):
        raise StoreError("the file describes an impossible array")
    code = value.arguments[0]
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        return Refused("an object array, which is never loaded" if code in ("O", "O8") else "an array of another dtype")
    order = value.state[1] if _is_tuple(value.state, 2) else "="
    if order not in ("<", ">", "=", "|"):
        raise StoreError("the file describes an impossible array")
    return np.dtype(code if code[0] in "<>|=" else f"{order}{code}")


def _array(state: Any) -> NDArray[Any] | Refused:
    """The array of ``(version, shape, dtype, is_fortran, data)``."""
    if not _is_tuple(state, 5):
        raise StoreError("the file describes an impossible array")
    _, shape, described, fortran, content = state[:5]
    dtype = _dtype(described)
    if isinstance(dtype, Refused):
        return dtype
    data = _bytes(content)
    if data is None or not _are_counts(shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise StoreError("the file describes an impossible array")
    if not dtype.itemsize:
        return Refused("an array of empty texts")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran is True else "C")


def _scalar(arguments: Any) -> Any:
    if not _is_tuple(arguments, 2):
        raise StoreError("the file describes an impossible number")
    dtype, data = _dtype(arguments[0]), _bytes(arguments[1])
    if isinstance(dtype, Refused):
        return dtype
    if data is None or len(data) != dtype.itemsize or not dtype.itemsize:
        raise StoreError("the file describes an impossible number")
    return np.frombuffer(data, dtype)[0].item()
