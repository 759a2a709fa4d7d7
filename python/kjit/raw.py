"""RawModule and RawKernel with CuPy's signatures, for code that has cupy.RawModule and cupy.RawKernel."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from ._request import Part
from .kernel import _LAUNCHERS_MAX, Dim, Kernel
from .module import Module

_PART_KINDS = {".cubin": "cubin", ".ptx": "ptx", ".fatbin": "fatbin"}


def _split_options(options: Iterable[str]) -> tuple[list[str], dict[str, object], list[str]]:
    """(options, defines, include folders): kjit takes -D and -I apart from the others."""
    rest: list[str] = []
    defines: dict[str, object] = {}
    folders: list[str] = []
    waiting = ""
    for option in options:
        if waiting:
            option, waiting = waiting + option, ""
        if option in ("-D", "-I", "--define-macro", "--include-path"):
            waiting = option[:2] if option[1] != "-" else option + "="
            continue
        for prefix in ("--define-macro=", "-D"):
            if option.startswith(prefix):
                name, _, value = option[len(prefix) :].partition("=")
                defines[name] = value if _ else None
                break
        else:
            for prefix in ("--include-path=", "-I"):
                if option.startswith(prefix):
                    folders.append(option[len(prefix) :])
                    break
            else:
                rest.append(option)
    if waiting:
        raise ValueError(f"options end with {waiting}, which needs a value")
    return rest, defines, folders


def _check(backend: str, translate_cucomplex: bool, jitify: bool, options: Any) -> None:
    if backend != "nvrtc":
        raise ValueError(f"backend is {backend!r}: kjit compiles by NVRTC alone; leave backend out")
    if translate_cucomplex:
        raise NotImplementedError("translate_cucomplex: not done by kjit; include <cuComplex.h> or <cuda/std/complex>")
    if isinstance(options, str):
        raise TypeError(f"options is {options!r}: must be several texts, ({options!r},)")


class RawModule:
    """cupy.RawModule: a CUDA source, or a file with a cubin, PTX or fatbin, compiled when a kernel is first asked for.

    code or path: one of them. options: NVRTC's, -D and -I among them. name_expressions: the kernels and variables of
    templates that get_function() and get_global() may be asked for. enable_cooperative_groups: kernels are launched
    cooperatively. jitify is of no effect: headers are found without it. Another backend than "nvrtc" is a ValueError.
    """

    def __init__(
        self,
        *,
        code: Optional[str] = None,
        path: Optional[str] = None,
        options: Iterable[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Optional[Iterable[str]] = None,
        jitify: bool = False,
    ) -> None:
        _check(backend, translate_cucomplex, jitify, options)
        if (code is None) == (path is None):
            raise TypeError("exactly one of code and path must be given")
        self.code, self.file_path, self.backend = code, path, backend
        self.options = tuple(options)
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self.enable_cooperative_groups = enable_cooperative_groups
        self._module: Optional[Module] = None

    @property
    def module(self) -> Module:
        """The kjit.Module, compiled and loaded."""
        if self._module is None:
            options, defines, folders = _split_options(self.options)
            parts = []
            if self.file_path is not None:
                kind = _PART_KINDS.get(Path(self.file_path).suffix)
                if kind is None:
                    raise ValueError(f"path is {self.file_path!r}: must end in {', '.join(_PART_KINDS)}")
                parts = [Part(kind, Path(self.file_path).read_bytes(), Path(self.file_path).name)]
            self._module = Module(
                self.code,
                names=self.name_expressions or (),
                defines=defines,
                options=options,
                include_dirs=folders,
                parts=parts,
            )
        return self._module

    def compile(self, log_stream: Any = None) -> None:
        """Compile now. log_stream: gets the compiler's messages by its write()."""
        artifact = self.module.artifact
        if log_stream is not None:
            log_stream.write(artifact.log)

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name in the code, or by one of name_expressions."""
        return RawKernel._of(self.module[name], self)

    def get_global(self, name: str) -> Any:
        """A variable: CuPy's MemoryPointer where CuPy is imported, else a kjit.Global."""
        found = self.module.get_global(name)
        cupy = sys.modules.get("cupy")
        if cupy is None:
            return found
        memory = cupy.cuda.UnownedMemory(found.address, found.bytes, self.module)
        return cupy.cuda.MemoryPointer(memory, 0)


class RawKernel:
    """cupy.RawKernel: kernel(grid, block, args, shared_mem=bytes), on the current stream of the arrays' framework.

    code: the source; name: its extern "C" kernel, or a name expression. The arguments are those of kjit.Kernel: unlike
    CuPy's, a Python number has the size that the parameter has.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: Iterable[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}: must be a str")
        self._raw = RawModule(
            code=code,
            options=options,
            backend=backend,
            translate_cucomplex=translate_cucomplex,
            enable_cooperative_groups=enable_cooperative_groups,
            name_expressions=None if name.isidentifier() else (name,),
            jitify=jitify,
        )
        self.name = name
        self._kernel: Optional[Kernel] = None
        self._launchers: dict[Any, Any] = {}

    @classmethod
    def _of(cls, kernel: Kernel, module: RawModule) -> RawKernel:
        made = cls.__new__(cls)
        made._raw, made.name, made._kernel, made._launchers = module, kernel.name, kernel, {}
        return made

    @property
    def kernel(self) -> Kernel:
        """The kjit.Kernel, compiled and loaded."""
        if self._kernel is None:
            self._kernel = self._raw.module[self.name]
        return self._kernel

    def compile(self, log_stream: Any = None) -> None:
        """Compile now. log_stream: gets the compiler's messages by its write()."""
        self._raw.compile(log_stream)

    def __call__(self, grid: Dim, block: Dim, args: tuple[Any, ...], *, shared_mem: int = 0) -> None:
        """Launch; asynchronous."""
        how = (grid, block, shared_mem)
        try:
            launcher = self._launchers[how]
        except (KeyError, TypeError):  # not there yet, or with a list in it
            cooperative = self._raw.enable_cooperative_groups
            launcher = self.kernel.launcher(grid, block, shared=shared_mem, cooperative=cooperative)
            if not isinstance(grid, list) and not isinstance(block, list):
                if len(self._launchers) >= _LAUNCHERS_MAX:
                    self._launchers.clear()
                self._launchers[how] = launcher
        launcher.on(None, args if type(args) is tuple else tuple(args))

    @property
    def attributes(self) -> dict[str, int]:
        """What is known of the compiled kernel, by CuPy's names."""
        info = self.kernel.info
        return {
            "max_threads_per_block": info.max_threads,
            "shared_size_bytes": info.shared_bytes,
            "local_size_bytes": info.local_bytes,
            "num_regs": info.registers,
        }

    code = property(lambda self: self._raw.code)
    options = property(lambda self: self._raw.options)
    backend = property(lambda self: self._raw.backend)
    file_path = property(lambda self: self._raw.file_path)
    enable_cooperative_groups = property(lambda self: self._raw.enable_cooperative_groups)
    #: From __launch_bounds__, 0 if unstated.
    max_threads_per_block = property(lambda self: self.kernel.info.max_threads)
    shared_size_bytes = property(lambda self: self.kernel.info.shared_bytes)
    local_size_bytes = property(lambda self: self.kernel.info.local_bytes)
    num_regs = property(lambda self: self.kernel.info.registers)
