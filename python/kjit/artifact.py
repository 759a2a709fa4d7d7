"""A compiled kernel: what it is, what it costs, where it came from."""

from __future__ import annotations

import ctypes
import dataclasses

from . import _abi
from ._library import as_dict, call, lib, struct


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


def read_artifact(handle: ctypes.c_void_p) -> Artifact:
    info = struct(_abi.kjit_artifact_info)
    call(lib.kjit_artifact_get_info, handle, ctypes.byref(info))
    members = as_dict(info)
    members["cubin"] = ctypes.string_at(info.cubin, info.cubin_bytes) if info.cubin else b""
    members["origin"] = lib.kjit_origin_name(info.origin).decode()
    return Artifact(**{field.name: members[field.name] for field in dataclasses.fields(Artifact)})
