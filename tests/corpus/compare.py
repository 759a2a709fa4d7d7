"""One case through bare NVRTC and through kjit, in a process of its own, because a crash may be part of the answer.

usage: compare.py < CASE.json > VERDICT.json

Both get the same text, headers, folders, names and options. Equal means: both compile it to the same bytes, or both
refuse it. With KJIT_CORPUS_DEFAULT=1 kjit leaves unused variables out, as it does by default; equal then means the same
machine code of each function, in a cubin that is no larger. kjit's cache is off.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from typing import Any

import bare

BY_DEFAULT = os.environ.get("KJIT_CORPUS_DEFAULT") == "1"


def _put(request: Any, member: str, count: str, values: list[Any], kind: Any) -> None:
    setattr(request, member, (kind * len(values))(*values))
    setattr(request, count, len(values))


def make_request(case: dict[str, Any]) -> Any:
    from kjit import _abi

    text = case["text"].encode()
    request = _abi.kjit_build_request(
        struct_size=ctypes.sizeof(_abi.kjit_build_request),
        arch=case.get("arch", "sm_90").encode(),
        entry=case["entry"].encode() if case.get("entry") else None,
        source=_abi.kjit_source(b"case.cu", text, len(text)),
        flags=0 if BY_DEFAULT else _abi.KJIT_BUILD_KEEP_UNUSED,
    )
    headers = [_abi.kjit_source(name.encode(), data.encode(), 0) for name, data in case.get("headers", {}).items()]
    defines = [_abi.kjit_define(name.encode(), value.encode()) for name, value in case.get("defines", {}).items()]
    _put(request, "headers", "header_count", headers, _abi.kjit_source)
    _put(request, "defines", "define_count", defines, _abi.kjit_define)
    for member, count, key in (("include_dirs", "include_dir_count", "dirs"), ("options", "option_count", "options"),
                               ("names", "name_count", "names")):
        _put(request, member, count, [each.encode() for each in case.get(key, ())], ctypes.c_char_p)
    return request


class Kjit:
    def __init__(self, library: str, cache_mode: str = "off", cache_dir: str | None = None) -> None:
        import kjit

        self.runtime = kjit.Runtime(cache_mode=cache_mode, cache_dir=cache_dir, nvrtc_path=library)

    def compile(self, case: dict[str, Any]) -> dict[str, Any]:
        from kjit import _abi
        from kjit._library import lib
        from kjit.artifact import read_artifact

        request, handle, error = make_request(case), ctypes.c_void_p(), _abi.kjit_error()
        started = time.perf_counter()
        status = lib.kjit_build(self.runtime.handle, ctypes.byref(request), ctypes.byref(handle), ctypes.byref(error))
        taken = (time.perf_counter() - started) * 1e3
        artifact = read_artifact(handle) if handle else None
        lib.kjit_artifact_release(handle)
        ok = status == _abi.KJIT_OK
        return {"ok": ok, "cubin": artifact.cubin if ok else b"", "ms": taken,
                "log": artifact.log if artifact and artifact.log else error.message.decode(errors="replace")}


def first_error(log: str) -> str:
    lines = [line for line in log.splitlines() if "error" in line or "fatal" in line]
    return (lines or log.splitlines() or [""])[0][:200]


def differing_bytes(one: bytes, other: bytes) -> int:
    return abs(len(one) - len(other)) + sum(a != b for a, b in zip(one, other))


def machine_code(cubin: bytes) -> dict[bytes, bytes]:
    """What the sections .text.* of an ELF file of 64 bits hold, by name."""
    if not cubin:
        return {}
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    start = headers[names][4]
    found = {}
    for name, _, _, _, offset, length in headers:
        text = cubin[start + name:cubin.index(b"\0", start + name)]
        if text.startswith(b".text."):
            found[text] = cubin[offset:offset + length]
    return found


def are_equal(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    if theirs["ok"] != ours["ok"] or not BY_DEFAULT:
        return theirs["ok"] == ours["ok"] and theirs["cubin"] == ours["cubin"]
    shrunk = len(ours["cubin"]) <= len(theirs["cubin"])
    return shrunk and machine_code(theirs["cubin"]) == machine_code(ours["cubin"])


def compare(case: dict[str, Any]) -> dict[str, Any]:
    library = bare.find_nvrtc()
    theirs = bare.Nvrtc(library).compile(case, bare.options_of(case, bare.find_toolkit()))
    ours = Kjit(library).compile(case)
    return {
        "name": case["name"],
        "bare": "compiles" if theirs["ok"] else "refused",
        "kjit": "compiles" if ours["ok"] else "refused",
        "equal": are_equal(theirs, ours),
        "bytes": len(theirs["cubin"]),
        "kjit_bytes": len(ours["cubin"]),
        "differing": differing_bytes(theirs["cubin"], ours["cubin"]),
        "bare_ms": theirs["ms"],
        "kjit_ms": ours["ms"],
        "bare_says": "" if theirs["ok"] else first_error(theirs["log"]),
        "kjit_says": "" if ours["ok"] else first_error(ours["log"]),
    }


if __name__ == "__main__":
    json.dump(compare(json.load(sys.stdin)), sys.stdout)
