"""Sealing programs: kernels' sources with all that they include, as one file. kjit.Program.open() opens one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Optional

from . import _abi
from ._library import as_text, call, lib
from ._request import Defines, Part, Paths, request_for
from .artifact import Artifact
from .bundle import Compress, Packer
from .runtime import Runtime


class Sealer(Packer):
    """Collects requests and makes a sealed program of them. Not thread-safe.

        sealer = kjit.Sealer()
        sealer.add(source, "n::scale<float, 4>", "sm_90a", include_dirs=["include"])
        Path("app.kprog").write_bytes(sealer.finish())

    compress: makes zstd frames, as for kjit.BundleWriter; None: texts are stored as they are.
    """

    def __init__(self, compress: Optional[Compress] = None, *, runtime: Optional[Runtime] = None) -> None:
        super().__init__(lib.kjit_sealer_create, compress, runtime)

    def __del__(self) -> None:
        lib.kjit_sealer_destroy(self._handle)

    def add(
        self,
        text: str,
        entry: Optional[str],
        arch: Optional[str] = None,
        *,
        name: str = "source.cu",
        defines: Optional[Defines] = None,
        headers: Optional[Mapping[str, str]] = None,
        include_dirs: Paths = (),
        options: Iterable[str] = (),
        names: Iterable[str] = (),
        parts: Iterable[Part] = (),
        strict_sources: bool = False,
        timeout_ms: int = 0,
    ) -> Artifact:
        """Compile a kernel and seal what its compile read. The arguments are those of kjit.compile_source()."""
        request = request_for(
            text,
            entry=entry,
            arch=arch or self._runtime.device_arch(specific=True),
            name=name,
            defines=defines,
            headers=headers,
            include_dirs=include_dirs,
            options=options,
            names=names,
            parts=parts,
            strict_sources=strict_sources,
            timeout_ms=timeout_ms,
        )
        # The order of arguments of a build: runtime, request, artifact, error.
        return self._runtime._take(
            lambda runtime, *rest: lib.kjit_sealer_add(self._handle, runtime, *rest), ctypes.byref(request)
        )

    def finish(self, *, with_texts: bool = True, secret_key: Optional[str] = None) -> bytes:
        """The program's bytes, signed when there is a key. The same requests, in the same order, give the same bytes.

        with_texts False: names and digests alone; the kernels must then be found in a bundle or a cache.
        """
        body = self._body(lib.kjit_sealer_finish, 0 if with_texts else _abi.KJIT_SEAL_WITHOUT_TEXTS)
        if secret_key is None:
            return body
        signature = (ctypes.c_uint8 * _abi.KJIT_BUNDLE_SIGNATURE_BYTES)()
        call(lib.kjit_sealer_sign, self._handle, as_text("secret_key", secret_key), signature)
        return body + bytes(signature)
