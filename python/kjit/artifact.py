"""A compiled kernel: what it is, what it costs, where it came from."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

from . import _abi
from ._library import as_dict, call, lib, struct
from ._native_part import address_of, native


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A compiled kernel, copied out of the library: the members of kjit_artifact_info."""

    key: str
    key_text: str = dataclasses.field(repr=False)
    arch: str
    entry: str
    cubin: bytes = dataclasses.field(repr=False)
    cubin_bytes: int
    log: str = dataclasses.field(repr=False)
    registers: int
    spill_bytes: int
    local_bytes: int
    shared_bytes: int
    max_threads: int
    #: "memory", "bundle", "site", "user", "remote" or "built": where this call's answer came from.
    origin: str
    compile_ms: float
    kernel_count: int
    #: Where this process's compile spent its time: includes_ms, compile_ms, front_end_ms, optimizer_ms, ptxas_ms,
    #: link_ms, publish_ms, the inner ones with Runtime(time_phases=True); all 0 for what was found.
    phases: dict[str, float] = dataclasses.field(default_factory=dict, repr=False, compare=False)


#: What was read of artifacts in memory, by key: a repeated request need not copy them again.
_known: dict[bytes, Artifact] = {}
_KNOWN_MAX = 64
_KNOWN_CUBIN_MAX = 1 << 20

if native is not None:
    native.configure_requests(
        address_of(lib.kjit_build),
        address_of(lib.kjit_artifact_get_info),
        address_of(lib.kjit_artifact_release),
        _known,
    )

_info_bytes = ctypes.sizeof(_abi.kjit_artifact_info)


def read_artifact(handle: Any) -> Artifact:
    """Copy what the library knows of an artifact."""
    info = _abi.kjit_artifact_info(_info_bytes)
    call(lib.kjit_artifact_get_info, handle, ctypes.byref(info))
    if info.origin != _abi.KJIT_ORIGIN_MEMORY:
        return dataclasses.replace(_read(info), phases=_phases(handle))
    key: bytes = info.key
    found = _known.get(key)
    if found is None:
        found = _read(info)
        if found.cubin and len(found.cubin) <= _KNOWN_CUBIN_MAX:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            _known[key] = found
    return found


def _phases(handle: Any) -> dict[str, float]:
    found = struct(_abi.kjit_phases)
    call(lib.kjit_artifact_get_phases, handle, ctypes.byref(found))
    return as_dict(found)


def _read(info: Any) -> Artifact:
    members = as_dict(info)
    members["cubin"] = ctypes.string_at(info.cubin, info.cubin_bytes) if info.cubin else b""
    members["origin"] = lib.kjit_origin_name(info.origin).decode()
    names = (field.name for field in dataclasses.fields(Artifact))
    return Artifact(**{name: members[name] for name in names if name in members})


@dataclasses.dataclass(frozen=True)
class KernelInfo:
    """What is known of one kernel of an artifact: the members of kjit_kernel_info."""

    #: In the code: mangled, unless it is extern "C".
    name: str
    #: The name expression that means it, "" for none.
    expression: str
    registers: int
    spill_bytes: int
    local_bytes: int
    shared_bytes: int
    #: From __launch_bounds__, 0 if unstated.
    max_threads: int


_PLAIN = ("registers", "spill_bytes", "local_bytes", "shared_bytes", "max_threads")


def kernel_infos(handle: Any) -> list[KernelInfo]:
    """The kernels of an artifact."""
    found = []
    artifact = struct(_abi.kjit_artifact_info)
    call(lib.kjit_artifact_get_info, handle, ctypes.byref(artifact))
    for index in range(artifact.kernel_count):
        info = struct(_abi.kjit_kernel_info)
        call(lib.kjit_artifact_get_kernel, handle, index, ctypes.byref(info))
        pairs = (
            (_abi.kjit_kernel_info.name, info.name_bytes),
            (_abi.kjit_kernel_info.expression, info.expression_bytes),
        )
        # The texts are not NUL-terminated: they are read by address and length.
        addresses = [ctypes.c_void_p.from_buffer(info, member.offset).value for member, _ in pairs]
        texts = [
            ctypes.string_at(address, count).decode() if address and count else ""
            for address, (_, count) in zip(addresses, pairs)
        ]
        found.append(KernelInfo(texts[0], texts[1], *(getattr(info, name) for name in _PLAIN)))
    return found
