"""Modules: all that one compile made, loaded: its kernels by name or name expression, and its global variables."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from . import _abi, _cuda
from ._arrays import stream_number
from ._library import as_number, as_text, call, lib, raise_error, struct
from ._request import Defines, Part, Paths, request_for
from .artifact import Artifact, KernelInfo, kernel_infos, read_artifact
from .kernel import Kernel
from .runtime import Runtime, runtime_or_default


class Global(NamedTuple):
    """A __device__ or __constant__ variable in device memory; valid while its module is held."""

    address: int
    bytes: int


class Module:
    """A CUDA source, compiled or found in the cache, and loaded. Thread-safe.

        module = kjit.Module(source, names=["n::scale<float, 4>", "&n::count"], defines={"N": 4})
        module["n::scale<float, 4>"][grid, block](x, n)

    source: the text; None where `parts` are all there is. names: kernels and variables that the module must have, as
    name expressions: `n::k<float, 4>`; `__constant__` variables by name, `__device__` ones with an ampersand.
    extern "C" kernels need none. headers: texts by their name as in #include. defines: macros in front of it, {"N": 4}.
    options: NVRTC's, ("--use_fast_math",); not -D, -I, -arch. include_dirs: folders of further headers. arch: "sm_90a",
    …; by default that of the current GPU, with its own features. name: what messages call the source. parts: compiled
    code to be linked with it. no_compile: a miss is NotFound. strict_sources: every header is read and compared, in
    place of its stamp. keep_unused: variables of namespaces that nothing uses stay in the cubin. timeout_ms:
    DeadlinePassed when it is not there in time; 0 is none.

    On CompileError, `log` has what the compiler said.
    """

    def __init__(
        self,
        source: Optional[str],
        *,
        names: Iterable[str] = (),
        headers: Optional[Mapping[str, str]] = None,
        defines: Optional[Defines] = None,
        options: Iterable[str] = (),
        include_dirs: Paths = (),
        arch: Optional[str] = None,
        name: str = "source.cu",
        parts: Iterable[Part] = (),
        no_compile: bool = False,
        strict_sources: bool = False,
        keep_unused: bool = False,
        timeout_ms: int = 0,
        runtime: Optional[Runtime] = None,
    ) -> None:
        request = request_for(
            source,
            arch=arch,
            name=name,
            defines=defines,
            headers=headers,
            include_dirs=include_dirs,
            options=options,
            names=names,
            parts=parts,
            no_compile=no_compile,
            strict_sources=strict_sources,
            keep_unused=keep_unused,
            timeout_ms=timeout_ms,
        )
        self._runtime = runtime_or_default(runtime)
        self._handle = ctypes.c_void_p()
        self._kernels: dict[str, Kernel] = {}
        _cuda.ensure_current()
        error = _abi.kjit_error()
        if lib.kjit_module_get(
            self._runtime.handle, ctypes.byref(request), ctypes.byref(self._handle), ctypes.byref(error)
        ):
            self._raise(request, error)
        self._runtime._own(self, lib.kjit_module_release, self._handle)

    @classmethod
    def _of(cls, runtime: Runtime, handle: ctypes.c_void_p) -> Module:
        """A module that the library gave, which is released with this object."""
        module = cls.__new__(cls)
        module._runtime, module._handle, module._kernels = runtime, handle, {}
        runtime._own(module, lib.kjit_module_release, handle)
        return module

    def _raise(self, request: Any, error: Any) -> None:
        """A failed compile is kept in memory with its log: asking for the artifact gives the same error with it."""
        if error.status == _abi.KJIT_ERR_COMPILE:
            own = type(request).from_buffer_copy(request)  # what it points to is held by the request
            own.arch = own.arch or self._runtime.device_arch(specific=True).encode()
            self._runtime._take(lib.kjit_build, ctypes.byref(own))
        raise_error(error)

    def __getitem__(self, name: str) -> Kernel:
        """A kernel: one of `names` as it stands there, or the name that the code has. NotFound lists what there is."""
        try:
            return self._kernels[name]
        except KeyError:
            return self._kernels.setdefault(name, self._load(name))

    def kernel(self, name: str) -> Kernel:
        """The same as module[name]."""
        return self[name]

    def _load(self, name: str) -> Kernel:
        handle = ctypes.c_void_p()
        _cuda.ensure_current()
        call(lib.kjit_module_get_kernel, self._handle, as_text("name", name), ctypes.byref(handle))
        return Kernel(self._runtime, handle, name)

    @property
    def artifact(self) -> Artifact:
        """What was compiled: cubin, log, key, where it came from."""
        return read_artifact(lib.kjit_module_artifact(self._handle))

    @property
    def kernels(self) -> list[KernelInfo]:
        """What is known of each kernel: its name in the code, its expression, registers, spills."""
        return kernel_infos(lib.kjit_module_artifact(self._handle))

    def get_global(self, name: str) -> Global:
        """Where a __device__ or __constant__ variable is. A variable that no kernel uses may have been left out."""
        found = struct(_abi.kjit_global)
        _cuda.ensure_current()
        call(lib.kjit_module_get_global, self._handle, as_text("name", name), ctypes.byref(found))
        return Global(found.address, found.bytes)

    def read_global(self, name: str, bytes: Optional[int] = None, *, offset: int = 0, stream: Any = None) -> bytes:
        """The variable's content after what is enqueued on the stream; waits. bytes None: to its end."""
        begin = as_number("offset", offset)
        count = max(0, self.get_global(name).bytes - begin) if bytes is None else as_number("bytes", bytes)
        content = ctypes.create_string_buffer(count)
        where = 0 if stream is None else stream_number(stream)
        call(lib.kjit_module_read_global, self._handle, as_text("name", name), begin, content, count, where)
        return content.raw

    def write_global(self, name: str, data: Any, *, offset: int = 0, stream: Any = None) -> None:
        """Copy to the variable, in the order of the stream.

        data: bytes, or what shows its memory as they do, such as a NumPy array, array.array or a ctypes value.
        """
        content = memoryview(data).tobytes() if not isinstance(data, (bytes, bytearray)) else data
        where = 0 if stream is None else stream_number(stream)
        _cuda.ensure_current()
        place = as_text("name", name), as_number("offset", offset)
        call(lib.kjit_module_write_global, self._handle, *place, bytes(content), len(content), where)
