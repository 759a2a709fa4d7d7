"""Programs: a source with its headers and options, taken once, whose kernels are asked for again and again."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from . import _abi
from ._library import call as _call
from ._library import lib, struct
from ._request import Defines, Part, Paths, build_request, define_array, put_array
from .artifact import Artifact
from .runtime import Runtime, default_runtime


class Program:
    """A source whose repeated request is a look-up. No GPU needed. Thread-safe.

        program = kjit.Program(source, arch="sm_90a")
        artifact = program.get("n::scale<float, 4>", defines={"N": 4})

    The arguments are those of kjit.Module. Files are looked at when a variant is asked for the first time, and not
    again: who edits a header makes a new program.
    """

    def __init__(
        self,
        source: Optional[str],
        *,
        headers: Optional[Mapping[str, str]] = None,
        defines: Optional[Defines] = None,
        options: Iterable[str] = (),
        include_dirs: Paths = (),
        arch: Optional[str] = None,
        name: str = "source.cu",
        parts: Iterable[Part] = (),
        runtime: Optional[Runtime] = None,
    ) -> None:
        self._runtime = runtime or default_runtime()
        request = build_request(
            source,
            arch=arch or self._runtime.device_arch(specific=True),
            name=name,
            defines=defines,
            headers=headers,
            include_dirs=include_dirs,
            options=options,
            parts=parts,
        )
        self._handle = ctypes.c_void_p()
        self._known: dict[Any, Artifact] = {}
        _call(lib.kjit_program_create, self._runtime.handle, ctypes.byref(request), ctypes.byref(self._handle))
        self._runtime._own(self, lib.kjit_program_release, self._handle)

    def get(
        self,
        entry: str,
        *,
        arch: Optional[str] = None,
        defines: Optional[Defines] = None,
        no_compile: bool = False,
    ) -> Artifact:
        """A kernel: an extern "C" name or a name expression.

        defines: behind the program's own, none of them among those.
        On CompileError, `log` has what the compiler said. no_compile: a miss is NotFound.
        """
        key = (entry, arch, tuple(defines.items()) if defines else None)
        found = self._known.get(key)
        if found is not None:
            return found
        variant = struct(
            _abi.kjit_program_variant,
            entry=entry.encode(),
            arch=None if arch is None else arch.encode(),
            flags=_abi.KJIT_BUILD_NO_COMPILE if no_compile else 0,
        )
        put_array(variant, "defines", "define_count", define_array(defines))

        def build(runtime: int, *rest: Any) -> int:
            status: int = lib.kjit_program_get(self._handle, *rest)
            return status

        return self._known.setdefault(key, self._runtime._take(build, ctypes.byref(variant)))
