"""Compilation of inner kernels to be linked into others only: neither optimized nor made machine code on their own.

Numba optimizes every compiled function together with all that it calls, and makes machine code of it.  A kernel that
others call only is optimized in each of them again, so that its own passes, some third of the work, are left out here.
The class of Numba that does this is not public: `inner_options` returns no options for a Numba that lacks it.
"""

from __future__ import annotations

from typing import Any

from numba.core import codegen, compiler, compiler_machinery, typed_passes

# Untyped, and absent in a Numba that has changed.
_Library: Any = getattr(codegen, "JITCodeLibrary", object)
_Compiler: Any = compiler.CompilerBase
_Pass: Any = compiler_machinery.AnalysisPass
_Passes: Any = compiler.DefaultPassBuilder
_register: Any = compiler_machinery.register_pass

# Methods of the library that are replaced or called here.
_NEEDED = (
    "_finalize_dynamic_globals",
    "_finalize_final_module",
    "_optimize_final_module",
    "_verify_declare_only_symbols",
    "enable_object_caching",
    "get_pointer_to_function",
    "serialize_using_bitcode",
    "serialize_using_object_code",
)


def inner_options() -> dict[str, Any]:
    """Options of `numba.njit` for kernels that only other kernels call."""
    if any(not hasattr(_Library, name) for name in _NEEDED):
        return {}
    return {"pipeline_class": _InnerCompiler}


class _Codegen:
    """Code generator of a library without machine code, in which no address can be set."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, *_: Any) -> None:
        """Do nothing: the environment serves Python objects, which these kernels do not use."""


class _InnerLibrary(_Library):  # type: ignore[misc]
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


@_register(mutates_CFG=False, analysis_only=True)
class _MakeLibrary(_Pass):  # type: ignore[misc]
    """Pass that makes the library of a function, before its lowering would."""

    _name = "reid_dist_make_library"

    def __init__(self) -> None:
        _Pass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


class _InnerCompiler(_Compiler):  # type: ignore[misc]
    """Numba's own passes, with the library of `_MakeLibrary`."""

    def define_pipelines(self) -> list[Any]:
        passes = _Passes.define_nopython_pipeline(self.state)
        passes.add_pass_after(_MakeLibrary, typed_passes.NopythonRewrites)
        passes.finalize()
        return [passes]
