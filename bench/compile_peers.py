#!/usr/bin/env python3
"""Time users' kernels from source to cubin: bare NVRTC, kjit, CuPy and cuda.core, in one run. No GPU is needed.

usage: compile_peers.py [--rounds N]

Run by a Python that has CuPy and cuda.core (tests/corpus/requirements.txt, and cuda-core); one that is not there is
left out and said. Every round takes the programs in a new order. Cold is a fresh constant in the text, so that nobody's
cache knows it; PCH is the same with kjit's compile server and a precompiled preamble that was made before. CuPy and
cuda.core compile, as they do without a GPU: their caches need a device, or are not used with this call.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from tables import ROOT, find_package, markdown, number

sys.path.insert(0, str(ROOT / "tests/corpus"))
import bare  # noqa: E402

ARCH = "sm_90"
SOURCES = {
    "fp16": ("cuda_fp16.h", "p[threadIdx.x] += __half2float(__hadd(__float2half(p[0]), __float2half({n}.f)));"),
    "cuda/std": ("cuda/std/tuple", "p[0] = cuda::std::get<0>(cuda::std::make_tuple({n}.f, 1));"),
    "CUB": ("cub/block/block_reduce.cuh", "using R = cub::BlockReduce<float, 128>;\n"
            "  __shared__ typename R::TempStorage s;\n  float sum = R(s).Sum(p[threadIdx.x] + {n}.f);\n"
            "  if (!threadIdx.x) *p = sum;"),
}
Compile = Callable[[str], Any]


def text_of(source: str, constant: int) -> str:
    header, body = SOURCES[source]
    return f'#include <{header}>\nextern "C" __global__ void k(float *p) {{\n  {body.format(n=constant)}\n}}\n'


def peer_bare() -> Compile:
    nvrtc = bare.Nvrtc(bare.find_nvrtc())

    def compile_one(text: str) -> None:
        case = {"text": text, "arch": ARCH}
        if not nvrtc.compile(case, bare.options_of(case, bare.find_toolkit()))["ok"]:
            raise RuntimeError("bare NVRTC refuses the source")

    return compile_one


def peer_cupy() -> Compile:
    from cupy.cuda import compiler

    # What its RawModule compiles with; compile_using_nvrtc() around it asks for a device.
    options = (f"-arch={ARCH}", "--std=c++17", *(f"-I{folder}" for folder in bare.find_toolkit()))
    return lambda text: compiler._NVRTCProgram(text, "k.cu", method="cubin").compile(options)


def peer_cuda_core() -> Compile:
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(std="c++17", arch=ARCH, include_path=bare.find_toolkit())
    return lambda text: Program(text, code_type="c++", options=options).compile("cubin")


def ms(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def mean_ms(action: Callable[[], Any], calls: int) -> float:
    return ms(lambda: [action() for _ in range(calls)]) / calls


def kjit_hits(folder: str, source: str, constant: int) -> dict[str, float]:
    """What the kernel costs that a round has just compiled into the folder: by a fresh runtime, then in memory."""
    import kjit

    text = text_of(source, constant)
    with kjit.Runtime(cache_dir=folder, nvrtc_path=bare.find_nvrtc()) as runtime:
        disk = ms(lambda: runtime.compile_source(text, "k", ARCH))
        memory = mean_ms(lambda: runtime.compile_source(text, "k", ARCH), 20)
        program = kjit.Program(text, arch=ARCH, runtime=runtime)
        program.get("k")
        held = mean_ms(lambda: program.get("k"), 10000)
        del program
    return {"disk hit": disk, "memory hit": memory, "by program": held}


def make_peers(runtimes: dict[str, Any]) -> dict[str, Compile]:
    def of_runtime(name: str) -> Compile:
        return lambda text: runtimes[name].compile_source(text, "k", ARCH)

    makers: dict[str, Callable[[], Compile]] = {
        "bare NVRTC": peer_bare, "kjit": lambda: of_runtime("cold"), "kjit, PCH": lambda: of_runtime("pch"),
        "CuPy": peer_cupy, "cuda.core": peer_cuda_core}
    peers: dict[str, Compile] = {}
    for name, make in makers.items():
        try:
            peers[name] = make()
            peers[name](text_of("fp16", 1))
        except Exception as reason:  # a peer that cannot run here, whatever the cause
            peers.pop(name, None)
            print(f"not measured  {name}: {reason!r:.200}", file=sys.stderr)
    return peers


def constants() -> Iterator[int]:
    yield from range(int(time.time()) % 100000 * 100, 1 << 30)


def measure(source: str, peers: dict[str, Compile], folder: str, rounds: int, fresh: Iterator[int]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    if "kjit, PCH" in peers:  # the preamble is kept from its second use on
        for _ in range(2):
            peers["kjit, PCH"](text_of(source, next(fresh)))
    for _ in range(rounds):
        for name in random.sample(list(peers), len(peers)):
            constant = next(fresh)
            found.setdefault(name, []).append(ms(lambda: peers[name](text_of(source, constant))))
            if name == "kjit":
                for kind, taken in kjit_hits(folder, source, constant).items():
                    found.setdefault(kind, []).append(taken)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="compiles of each source by each program (5)")
    parser.add_argument("--worker", type=Path, help="kjit-compile-worker; by default that of build/release")
    arguments = parser.parse_args()
    find_package()
    import kjit

    worker: Optional[Path] = arguments.worker
    with tempfile.TemporaryDirectory() as folder:
        library = bare.find_nvrtc()
        runtimes = {
            "cold": kjit.Runtime(cache_dir=folder, nvrtc_path=library),
            "pch": kjit.Runtime(cache_mode="off", nvrtc_path=library, compile_server=True, pch="always",
                                worker_path=worker),
        }
        peers, fresh = make_peers(runtimes), constants()
        found = {source: measure(source, peers, folder, arguments.rounds, fresh) for source in SOURCES}
        for runtime in runtimes.values():
            runtime.close()
    columns = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = [[source, *(number(row.get(name), 4 if name == "by program" else 2) for name in columns)]
            for source, row in found.items()]
    print(markdown(["ms", *columns], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
