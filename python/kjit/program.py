"""Programs: a source with its headers and options, taken once, whose kernels are asked for again and again."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional, Union

from . import _abi, _cuda
from ._library import as_path, lib, struct, text_or_none
from ._library import call as _call
from ._request import Defines, Part, Paths, build_request, define_array, put_array
from .artifact import Artifact, read_artifact
from .kernel import Kernel
from .module import Module
from .runtime import Runtime, runtime_or_default


class SealedKernel(NamedTuple):
    """One kernel of a sealed program. entry, arch and defines are what Program.get() and kernel() take."""

    #: Name of the source.
    source: str
    entry: str
    arch: str
    defines: dict[str, str]
    #: Of its closure, the source among them.
    files: int
    #: Whether it can be compiled; else it must be found in a bundle or a cache.
    has_texts: bool


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
        self._runtime = runtime_or_default(runtime)
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
        self._start(lib.kjit_program_create, ctypes.byref(request))

    _memory: Any = None  # of a sealed program: its bytes

    def _start(self, create: Any, *what: Any) -> None:
        self._handle = ctypes.c_void_p()
        self._known: dict[Any, Artifact] = {}
        _call(create, self._runtime.handle, *what, ctypes.byref(self._handle))
        self._runtime._own(self, lib.kjit_program_release, self._handle)

    @classmethod
    def open(
        cls, source: Union[str, os.PathLike[str], bytes], *, runtime: Optional[Runtime] = None
    ) -> Program:
        """A sealed program, by its path or its bytes: what `kjit pack` or kjit.Sealer made. No header is needed.

        It gives what was sealed and nothing else: see kernels(). With Runtime(trusted_keys=…) one of them must have
        signed it.
        """
        program = cls.__new__(cls)
        program._runtime = runtime_or_default(runtime)
        if isinstance(source, bytes):
            program._memory = ctypes.create_string_buffer(source, len(source))  # outlives the handle
            blob = _abi.kjit_bundle_blob(ctypes.addressof(program._memory), len(source))
            program._start(lib.kjit_program_open, None, ctypes.byref(blob))
        else:
            program._start(lib.kjit_program_open, as_path("source", source), None)
        return program

    def kernels(self) -> list[SealedKernel]:
        """What a sealed program has, in the order in which it was sealed."""
        found: list[SealedKernel] = []

        def visit(user: Any, kernel: Any) -> int:
            row = kernel.contents
            variant = row.variant
            defines = {
                variant.defines[index].name.decode(): (variant.defines[index].value or b"1").decode()
                for index in range(variant.define_count)
            }
            texts = [(text or b"").decode() for text in (row.source, variant.entry, variant.arch)]
            found.append(SealedKernel(texts[0], texts[1], texts[2], defines, row.files, bool(row.has_texts)))
            return 0

        _call(lib.kjit_program_list, self._handle, _abi.kjit_program_visit(visit), None)
        return found

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
        variant = _variant(entry, arch, defines, no_compile)

        def build(runtime: int, *rest: Any) -> int:
            status: int = lib.kjit_program_get(self._handle, *rest)
            return status

        return self._known.setdefault(key, self._runtime._take(build, ctypes.byref(variant)))

    def kernel(
        self,
        entry: Optional[str] = None,
        *,
        arch: Optional[str] = None,
        defines: Optional[Defines] = None,
        no_compile: bool = False,
    ) -> Kernel:
        """The same kernel, loaded and ready to be launched; of a sealed program that for the current device."""
        handle, variant = ctypes.c_void_p(), _variant(entry, arch, defines, no_compile)
        _cuda.ensure_current()
        _call(lib.kjit_program_get_kernel, self._handle, ctypes.byref(variant), ctypes.byref(handle))
        return Kernel(self._runtime, handle, entry or read_artifact(lib.kjit_kernel_artifact(handle)).entry)

    def module(
        self,
        entry: Optional[str] = None,
        *,
        arch: Optional[str] = None,
        defines: Optional[Defines] = None,
        no_compile: bool = False,
    ) -> Module:
        """The module that the kernel is in, loaded: its other kernels and its global variables."""
        handle, variant = ctypes.c_void_p(), _variant(entry, arch, defines, no_compile)
        _cuda.ensure_current()
        _call(lib.kjit_program_get_module, self._handle, ctypes.byref(variant), ctypes.byref(handle))
        return Module._of(self._runtime, handle)


def _variant(entry: Optional[str], arch: Optional[str], defines: Optional[Defines], no_compile: bool) -> Any:
    variant = struct(
        _abi.kjit_program_variant,
        entry=text_or_none("entry", entry),
        arch=text_or_none("arch", arch),
        flags=_abi.KJIT_BUILD_NO_COMPILE if no_compile else 0,
    )
    put_array(variant, "defines", "define_count", define_array(defines))
    return variant
