"""NVRTC by hand, as its manual shows it: what a source is to the compiler when nobody stands in between."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any


class Nvrtc:
    """The library in a file. Not thread-safe by intention: one compile at a time is what is compared and timed."""

    def __init__(self, library: str) -> None:
        self.lib = ctypes.CDLL(library)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)

    def _log(self, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self.lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self.lib.nvrtcGetProgramLog(program, text)
        return text.value.decode(errors="replace")

    def _cubin(self, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self.lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.lib.nvrtcGetCUBIN(program, data)
        return data.raw

    def compile(self, case: dict[str, Any], options: list[str]) -> dict[str, Any]:
        """{"ok", "cubin", "log", "ms"} of a case (cases.py says what that is)."""
        program = ctypes.c_void_p()
        headers = case.get("headers", {})
        texts = (ctypes.c_char_p * len(headers))(*[text.encode() for text in headers.values()])
        names = (ctypes.c_char_p * len(headers))(*[name.encode() for name in headers])
        started = time.perf_counter()
        result = self.lib.nvrtcCreateProgram(ctypes.byref(program), case["text"].encode(), b"case.cu", len(headers),
                                             texts, names)
        for name in case.get("names", ()):
            result = result or self.lib.nvrtcAddNameExpression(program, name.encode())
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        result = result or self.lib.nvrtcCompileProgram(program, len(options), given)
        cubin = b"" if result else self._cubin(program)
        taken = (time.perf_counter() - started) * 1e3
        log = self._log(program)
        self.lib.nvrtcDestroyProgram(ctypes.byref(program))
        return {"ok": not result, "cubin": cubin, "log": log, "ms": taken}


def options_of(case: dict[str, Any], toolkit: list[str]) -> list[str]:
    """The command line of a case: kjit's standing options, since ptxas notes its own in the cubin, and the case's."""
    options = [f"--gpu-architecture={case.get('arch', 'sm_90')}"]
    if not any(option.lstrip("-").startswith("std=") for option in case.get("options", ())):
        options.append("--std=c++17")
    options += [f"-D{name}={value}" for name, value in case.get("defines", {}).items()]
    options += [f"-I{folder}" for folder in [*case.get("dirs", ()), *toolkit]]
    return [*options, "--ptxas-options=-v", "--no-cache", *case.get("options", ())]


def find_nvrtc() -> str:
    """$KJIT_NVRTC, else the toolkit's: the file that kjit is told to use as well."""
    named = os.environ.get("KJIT_NVRTC")
    folders = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"]
    found = [str(file) for folder in folders for file in sorted(folder.glob("libnvrtc.so.*"))]
    if not named and not found:
        raise FileNotFoundError("no NVRTC: KJIT_NVRTC names none and $CUDA_HOME/lib64 has none")
    return named or found[0]


def find_toolkit() -> list[str]:
    """The folders of the toolkit's headers, as kjit searches them behind a request's own."""
    root = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    return [str(folder) for folder in (root / "include", root / "include/cccl") if folder.is_dir()]
