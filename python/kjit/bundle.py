"""Bundles: many kernels in one read-only file. Opening them for use is kjit.Runtime(bundles=…, trusted_keys=…)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional, Union

from . import _abi
from ._library import as_dict, as_path, as_text, call, lib, struct, text_or_none
from ._request import Defines, Part, Paths, request_for, texts_of
from .artifact import Artifact
from .runtime import Config, Runtime, as_config, runtime_or_default

#: (dictionary, data, capacity) -> one zstd frame of at most `capacity` bytes, or b"" to store the kernel as it is.
Compress = Callable[[bytes, bytes, int], bytes]


def _keys(keys: Iterable[str]) -> Any:
    texts = texts_of("trusted_keys", keys)
    return (ctypes.c_char_p * len(texts))(*texts), len(texts)


class Bundle:
    """A bundle, opened to look into: its path or its bytes. Thread-safe.

    trusted_keys: public keys, 64 hex digits each; with any, the signature and every digest are checked, and what
    none of them signed is refused.
    """

    def __init__(self, source: Union[str, os.PathLike[str], bytes], *, trusted_keys: Iterable[str] = ()) -> None:
        self._handle = ctypes.c_void_p()
        keys, count = _keys(trusted_keys)
        if isinstance(source, bytes):
            self._memory = ctypes.create_string_buffer(source, len(source))
            blob = _abi.kjit_bundle_blob(ctypes.addressof(self._memory), len(source))
            call(lib.kjit_bundle_open, ctypes.byref(self._handle), None, ctypes.byref(blob), keys, count)
        else:
            call(lib.kjit_bundle_open, ctypes.byref(self._handle), as_path("source", source), None, keys, count)

    def close(self) -> None:
        lib.kjit_bundle_close(self._handle)
        self._handle.value = None

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def info(self) -> dict[str, Any]:
        """bytes, body_bytes, entries, archs, digest, signer."""
        found = struct(_abi.kjit_bundle_info)
        call(lib.kjit_bundle_get_info, self._handle, ctypes.byref(found))
        return as_dict(found)

    def entries(self) -> list[dict[str, Any]]:
        """Every kernel, unpacked and checked; what is damaged has a status and says why."""
        found: list[dict[str, Any]] = []

        def visit(user: Any, entry: Any) -> int:
            found.append(as_dict(entry.contents))
            return 0

        call(lib.kjit_bundle_list, self._handle, _abi.kjit_cache_visit(visit), None)
        return found

    def sign(self, secret_key: str) -> bytes:
        """The signature: bytes that belong behind the first info()["body_bytes"] of the file."""
        signature = (ctypes.c_uint8 * _abi.KJIT_BUNDLE_SIGNATURE_BYTES)()
        call(lib.kjit_bundle_sign, self._handle, as_text("secret_key", secret_key), signature)
        return bytes(signature)


class Packer:
    """What BundleWriter and Sealer have in common: a runtime, a handle of the library, a function that compresses."""

    def __init__(self, create: Any, compress: Optional[Compress], runtime: Optional[Runtime]) -> None:
        self._handle = ctypes.c_void_p()
        self._runtime = runtime_or_default(runtime)
        self._compress = _abi.kjit_compress_fn() if compress is None else _abi.kjit_compress_fn(_compressor(compress))
        call(create, ctypes.byref(self._handle), self._compress, None)

    def _body(self, finish: Any, *arguments: Any) -> bytes:
        """The bytes that the library has made, unsigned."""
        blob = _abi.kjit_bundle_blob()
        call(finish, self._handle, *arguments, ctypes.byref(blob))
        return ctypes.string_at(blob.data, blob.bytes)


class BundleWriter(Packer):
    """Collects kernels of a runtime's cache folder. Not thread-safe.

        writer = kjit.BundleWriter()
        writer.add_cache(filter="family=flash_forward")
        Path("kernels.kjb").write_bytes(writer.finish(secret_key=key))

    compress: makes zstd frames; None: kernels are stored as they are.
    """

    def __init__(self, compress: Optional[Compress] = None, *, runtime: Optional[Runtime] = None) -> None:
        super().__init__(lib.kjit_bundle_writer_create, compress, runtime)

    def __del__(self) -> None:
        lib.kjit_bundle_writer_destroy(self._handle)

    def add_cache(self, filter: Optional[str] = None) -> dict[str, int]:
        """Add the sound entries of the user folder; what was added.

        filter: "name=value,name=value", all of which hold: name is family, arch, entry, label or key.
        """
        report = struct(_abi.kjit_cache_report)
        call(
            lib.kjit_bundle_writer_add_cache,
            self._handle,
            self._runtime.handle,
            text_or_none("filter", filter),
            ctypes.byref(report),
        )
        return as_dict(report)

    def add(self, artifact: Artifact) -> None:
        """Add a kernel that is in the user folder."""
        if self.add_cache(f"key={artifact.key}")["entries"] != 1:
            raise LookupError(f"{artifact.key}: not in the cache folder {self._runtime.cache_path()}")

    def add_config(self, config: Config, arch: str) -> Artifact:
        """Build a config's kernel, or find it, and add it, whether it is in the user folder or not."""
        return self._runtime._take(
            lib.kjit_config_build, as_config(config)._kernel, as_text("arch", arch), 0, visit=self._add_handle
        )

    def add_source(
        self,
        text: Optional[str],
        entry: Optional[str],
        arch: str,
        *,
        name: str = "source.cu",
        defines: Optional[Defines] = None,
        headers: Optional[Mapping[str, str]] = None,
        include_dirs: Paths = (),
        options: Iterable[str] = (),
        names: Iterable[str] = (),
        parts: Iterable[Part] = (),
    ) -> Artifact:
        """The same for a kernel of your own. The arguments are those of kjit.compile_source()."""
        request = request_for(
            text,
            entry=entry,
            arch=arch,
            name=name,
            defines=defines,
            headers=headers,
            include_dirs=include_dirs,
            options=options,
            names=names,
            parts=parts,
        )
        return self._runtime._take(lib.kjit_build, ctypes.byref(request), visit=self._add_handle)

    def _add_handle(self, handle: Any) -> None:
        call(lib.kjit_bundle_writer_add, self._handle, handle)

    def finish(self, *, secret_key: Optional[str] = None) -> bytes:
        """The bundle's bytes, signed when there is a key. The same kernels give the same bytes."""
        body = self._body(lib.kjit_bundle_writer_finish)
        if secret_key is None:
            return body
        with Bundle(body) as bundle:
            return body + bundle.sign(secret_key)


def _compressor(compress: Compress) -> Any:
    """A kjit_compress_fn's function."""

    def run(user: Any, dictionary: Any, dictionary_bytes: int, data: Any, count: int, out: Any, capacity: int) -> int:
        try:
            known = ctypes.string_at(dictionary, dictionary_bytes) if dictionary_bytes else b""
            frame = compress(known, ctypes.string_at(data, count), capacity)
        except Exception:
            return 0  # stored as it is: nothing can be raised through the library
        if not frame or len(frame) > capacity:
            return 0
        ctypes.memmove(out, frame, len(frame))
        return len(frame)

    return run


def bundle_keygen() -> tuple[str, str]:
    """A new pair of Ed25519 keys as hex digits: (secret, public)."""
    secret, public = ctypes.create_string_buffer(65), ctypes.create_string_buffer(65)
    call(lib.kjit_bundle_keygen, secret, public)
    return secret.value.decode(), public.value.decode()
