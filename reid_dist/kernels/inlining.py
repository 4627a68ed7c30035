"""Compilation of kernels that call each other: every function is optimized once per kernel that Python calls.

Numba optimizes every compiled function together with all that it calls, and makes machine code of it.  A kernel that
others call is optimized in each of them again, so that its own passes, some third of the work, are left out here: inner
kernels, which only kernels call, are neither optimized nor made machine code on their own, and of the others the code
before optimization is linked, which is also shorter.  The classes of Numba that do this are not public:
`reid_dist.kernels.settings` imports this module for the versions that it was written for.

Most of the other time is Numba's own Python code.  It is spared signatures that are known
(`reid_dist.kernels.signatures`), passes that change nothing in kernels, collections of garbage, records of the time of
each pass and call of LLVM, and the counting of references in kernels that make no array: their arrays belong to the
caller.

A kernel from the cache is decoded as far as it is needed: inner kernels get no machine code, and the code of others for
linking is read when they are linked.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from llvmlite.binding import ffi
from numba.core import codegen, compiler, compiler_machinery, ir, typed_passes, untyped_passes

from reid_dist.kernels.signatures import remembering

# Untyped.
_Library: Any = codegen.JITCodeLibrary
_Compiler: Any = compiler.CompilerBase
_Pass: Any = compiler_machinery.AnalysisPass
_Passes: Any = compiler.DefaultPassBuilder
_Manager: Any = compiler_machinery.PassManager
_register: Any = compiler_machinery.register_pass
_generation: Any = codegen
_LLVM: Any = ffi.lib


class _Codegen:
    """Code generator of a library without machine code, in which no address can be set."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, *_: Any) -> None:
        """Do nothing: the environment serves Python objects, which these kernels do not use."""


class _OuterLibrary(_Library):  # type: ignore[misc]
    """Machine code of one function with those that it calls, and their code before optimization for linking."""

    def _optimize_functions(self, module: Any) -> None:
        # Numba's own passes, of the highest level, take half as long again, and run on the kernel that the function
        # becomes a part of.  Its loop also sets them up for declarations, eight times as many as functions.
        module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        for function in module.functions:
            if not function.is_declaration:
                passes = _generation.ll.create_new_function_pass_manager()
                passes.add_simplify_cfg_pass()
                passes.add_sroa_pass()
                passes.add_instruction_combine_pass()
                if _generation.config.LLVM_REFPRUNE_PASS:
                    passes.add_refprune_pass(_generation._parse_refprune_flags())
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        # Makes and keeps the module for linking, of what the final module holds now.
        self._finalized = True
        self._get_module_for_linking()
        self._finalized = False
        super()._optimize_final_module()


class _InnerLibrary(_OuterLibrary):
    """Code of one function and of those that it calls, for linking."""

    @property
    def codegen(self) -> Any:
        return _Codegen(self._codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> Any:
        return self.serialize_using_bitcode()


class _StoredLibrary(_OuterLibrary):
    """Machine code from the cache; the code for linking is decoded when it is needed."""

    bitcode = b""
    _shared_module: Any

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = _generation.ll.parse_bitcode(self.bitcode)
        return self._shared_module


class _Decoder(_Codegen):
    """Code generator that decodes the libraries of the cache."""

    def unserialize_library(self, state: tuple[str, str, Any]) -> _OuterLibrary:
        """Make a library of machine code, or of code for linking alone, of which Numba would make machine code."""
        name, kind, code = state
        if kind == "object":
            stored = _StoredLibrary(self._codegen, name)
            stored.enable_object_caching()
            machine_code, stored.bitcode = code
            stored._set_compiled_object(machine_code)
            stored._finalize_final_module()
            return stored
        inner = _InnerLibrary(self._codegen, name)
        inner._final_module = _generation.ll.parse_bitcode(code)
        inner._finalize_final_module()
        return inner


class _DecodingTarget:
    """Context of a target, with that code generator."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def codegen(self) -> _Decoder:
        """Return the code generator."""
        return _Decoder(self._target.codegen())


def decode_what_is_needed(cache: Any) -> None:
    """Have the cache of a kernel decode what its callers need: Numba decodes, and lists, all functions of a kernel."""
    rebuild = cache._impl.rebuild

    def rebuilt(target: Any, state: Any) -> Any:
        (_, kind, _), function, *_ = state
        if kind == "object":
            called = {function.llvm_func_name, function.llvm_cpython_wrapper_name}
            target.codegen()._engine._defined_symbols |= called
        return rebuild(_DecodingTarget(target), state)._replace(target_context=target)

    cache._impl.rebuild = rebuilt


# Expressions that make no array, but at most a view of one.
_VIEWS = ("getitem", "static_getitem", "getattr", "cast", "build_tuple", "exhaust_iter")


def _is_counted(state: Any) -> bool:
    """Whether references to arrays have to be counted: the function makes arrays, or returns them."""
    models = state.targetctx.data_model_manager

    def holds_memory(numba_type: Any) -> bool:
        return bool(models[numba_type].contains_nrt_meminfo())

    if holds_memory(state.return_type):
        return True
    for block in state.func_ir.blocks.values():
        for statement in block.find_insts(ir.Assign):
            made = isinstance(statement.value, ir.Expr) and statement.value.op not in _VIEWS
            if made and holds_memory(state.typemap[statement.target.name]):
                return True
    return False


class _MakeLibrary(_Pass):  # type: ignore[misc]
    """Pass that makes the library of a function, before its lowering would."""

    library: type[_OuterLibrary]

    def __init__(self) -> None:
        _Pass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        if not _is_counted(state):
            # A context for this function alone, without the counters that it may hold.
            state.targetctx = state.targetctx.subtarget(enable_nrt=False)
            vars(state.targetctx).pop("nrt", None)
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


@_register(mutates_CFG=False, analysis_only=True)
class _MakeInner(_MakeLibrary):
    _name = "reid_dist_make_inner_library"
    library = _InnerLibrary


@_register(mutates_CFG=False, analysis_only=True)
class _MakeOuter(_MakeLibrary):
    _name = "reid_dist_make_outer_library"
    library = _OuterLibrary


# Passes for closures, comprehensions and expressions of whole arrays, which kernels do not contain.
_NEEDLESS = (untyped_passes.InlineClosureLikes, typed_passes.NopythonRewrites)


class _Passing(_Manager):  # type: ignore[misc]
    """Runs passes without records of each, and checks of what they leave."""

    def _runPass(self, _: int, each: Any, state: Any) -> None:  # noqa: N802 - the name in Numba
        each.analysis = self._analysis
        each.run_initialization(state)
        each.run_pass(state)
        each.run_finalizer(state)


@cache
def _size_of(kind: Any, target_data: Any) -> Any:
    """Bytes of a value of an LLVM type, which llvmlite makes and parses a module for."""
    return kind.get_abi_size(target_data)


@contextlib.contextmanager
def _sparing() -> Iterator[None]:
    """Collect no cyclic garbage, which takes a tenth of the time, and record no call of LLVM."""
    collects, records = gc.isenabled(), _LLVM._lock._cblist
    gc.disable()
    _LLVM._lock._cblist = []
    try:
        yield
    finally:
        _LLVM._lock._cblist = records
        if collects:
            gc.enable()


class _OuterCompiler(_Compiler):  # type: ignore[misc]
    """Numba's own passes, with the library of another one."""

    make: type[_MakeLibrary] = _MakeOuter

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        target = self.state.targetctx
        target.get_abi_sizeof = lambda kind: _size_of(kind, target.target_data)
        # Done when the compiler was made; lowering does it again wherever a function is used for the first time.
        target.load_additional_registries = lambda: None
        options = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, **INNER_OPTIONS}
        self.state.typingctx = self.state.targetctx.typing_context = remembering(self.state.typingctx, options)

    def compile_extra(self, function: Any) -> Any:
        """Compile a function."""
        with _sparing():
            return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        usual = _Passes.define_nopython_pipeline(self.state)
        passes = _Passing(usual.pipeline_name)
        passes.passes = [entry for entry in usual.passes if entry[0] not in _NEEDLESS]
        passes.add_pass_after(self.make, typed_passes.InlineOverloads)
        passes.finalize()
        return [passes]


class _InnerCompiler(_OuterCompiler):
    make = _MakeInner


INNER_OPTIONS: Final[dict[str, Any]] = {"pipeline_class": _InnerCompiler}
"""Options of `numba.njit` for kernels that only other kernels call."""

OUTER_OPTIONS: Final[dict[str, Any]] = {"pipeline_class": _OuterCompiler}
"""Options of `numba.njit` for kernels that Python calls, and possibly other kernels."""
