#!/usr/bin/env python3
"""Time users' kernels from source to cubin: bare NVRTC, kjit, CuPy and cuda.core, in one run. No GPU is needed.

usage: compile_peers.py [--rounds N] [--cpu] [--only SOURCE]

Run by a Python that has CuPy and cuda.core (tests/corpus/requirements.txt, and cuda-core); one that is not there is
left out and said. Every round takes the programs in a new order. Cold is a fresh constant in the text, so that nobody's
cache knows it; PCH is the same with kjit's compile server and a precompiled preamble that was made before. CuPy and
cuda.core compile, as they do without a GPU: their caches need a device, or are not used with this call. CuTe takes part
where the package nvidia-cutlass is installed. With --cpu compiles are counted in processor time, of the compile
server's processes too, which other programs on the machine disturb less; a hit is always timed by the clock.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
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
_CUTE = ("cute/tensor.hpp", "auto t = cute::make_tensor(cute::make_gmem_ptr(p), "
         "cute::make_layout(cute::make_shape(cute::Int<4>{{}}, cute::Int<8>{{}})));\n  t(threadIdx.x % 4, 1) = {n}.f;")
Compile = Callable[[str], Any]


def cutlass_folder() -> Optional[str]:
    found = importlib.util.find_spec("cutlass_library")
    folder = Path(found.origin).parent / "source/include" if found and found.origin else None
    return str(folder) if folder and folder.is_dir() else None


CUTLASS = cutlass_folder()
if CUTLASS:
    SOURCES["CuTe"] = _CUTE


def needs(text: str) -> tuple[list[str], list[str]]:
    """Folders and options beyond the toolkit's that a source needs: CUTLASS marks few functions as the device's."""
    return ([CUTLASS], ["-default-device"]) if CUTLASS and "<cute/" in text else ([], [])


def text_of(source: str, constant: int) -> str:
    header, body = SOURCES[source]
    return f'#include <{header}>\nextern "C" __global__ void k(float *p) {{\n  {body.format(n=constant)}\n}}\n'


def peer_bare() -> Compile:
    nvrtc = bare.Nvrtc(bare.find_nvrtc())

    def compile_one(text: str) -> None:
        dirs, options = needs(text)
        case = {"text": text, "arch": ARCH, "dirs": dirs, "options": options}
        if not nvrtc.compile(case, bare.options_of(case, bare.find_toolkit()))["ok"]:
            raise RuntimeError("bare NVRTC refuses the source")

    return compile_one


def peer_cupy() -> Compile:
    from cupy.cuda import compiler

    # What its RawModule compiles with; compile_using_nvrtc() around it asks for a device.
    def compile_one(text: str) -> Any:
        dirs, more = needs(text)
        options = (f"-arch={ARCH}", "--std=c++17", *more, *(f"-I{folder}" for folder in [*dirs, *bare.find_toolkit()]))
        return compiler._NVRTCProgram(text, "k.cu", method="cubin").compile(options)

    return compile_one


def peer_cuda_core() -> Compile:
    from cuda.core import Program, ProgramOptions

    def compile_one(text: str) -> Any:
        dirs, more = needs(text)
        options = ProgramOptions(std="c++17", arch=ARCH, include_path=[*dirs, *bare.find_toolkit()],
                                 device_as_default_execution_space=bool(more) or None)
        return Program(text, code_type="c++", options=options).compile("cubin")

    return compile_one


def ms(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def processor_ms() -> float:
    """Of this process, and in ticks of 10 ms of all that it has started."""
    known: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it has ended meanwhile
                continue
            known[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    mine, before = {os.getpid()}, 0
    while len(mine) != before:
        before = len(mine)
        mine |= {process for process, (parent, _) in known.items() if parent in mine}
    ticks = sum(known[process][1] for process in mine - {os.getpid()})
    return time.process_time() * 1e3 + ticks * 1e3 / os.sysconf("SC_CLK_TCK")


def cpu_ms(action: Callable[[], Any]) -> float:
    started = processor_ms()
    action()
    return processor_ms() - started


def mean_ms(action: Callable[[], Any], calls: int) -> float:
    return ms(lambda: [action() for _ in range(calls)]) / calls


def kjit_hits(folder: str, source: str, constant: int) -> dict[str, float]:
    """What the kernel costs that a round has just compiled into the folder: by a fresh runtime, then in memory."""
    import kjit

    text = text_of(source, constant)
    dirs, options = needs(text)
    with kjit.Runtime(cache_dir=folder, nvrtc_path=bare.find_nvrtc()) as runtime:
        disk = ms(lambda: runtime.compile_source(text, "k", ARCH, include_dirs=dirs, options=options))
        memory = mean_ms(lambda: runtime.compile_source(text, "k", ARCH, include_dirs=dirs, options=options), 20)
        program = kjit.Program(text, arch=ARCH, include_dirs=dirs, options=options, runtime=runtime)
        program.get("k")
        held = mean_ms(lambda: program.get("k"), 10000)
        del program
    return {"disk hit": disk, "memory hit": memory, "by program": held}


def make_peers(runtimes: dict[str, Any]) -> dict[str, Compile]:
    def of_runtime(name: str) -> Compile:
        def compile_one(text: str) -> Any:
            dirs, options = needs(text)
            return runtimes[name].compile_source(text, "k", ARCH, include_dirs=dirs, options=options)

        return compile_one

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


def measure(source: str, peers: dict[str, Compile], folder: str, rounds: int, fresh: Iterator[int],
            clock: Callable[[Callable[[], Any]], float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    if "kjit, PCH" in peers:  # the preamble is kept from its second use on
        for _ in range(2):
            peers["kjit, PCH"](text_of(source, next(fresh)))
    for _ in range(rounds):
        for name in random.sample(list(peers), len(peers)):
            constant = next(fresh)
            found.setdefault(name, []).append(clock(lambda: peers[name](text_of(source, constant))))
            if name == "kjit":
                for kind, taken in kjit_hits(folder, source, constant).items():
                    found.setdefault(kind, []).append(taken)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="compiles of each source by each program (5)")
    parser.add_argument("--cpu", action="store_true", help="compiles in processor time")
    parser.add_argument("--only", choices=sorted(SOURCES), help="one of the sources")
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
        clock = cpu_ms if arguments.cpu else ms
        found = {source: measure(source, peers, folder, arguments.rounds, fresh, clock)
                 for source in ([arguments.only] if arguments.only else SOURCES)}
        for runtime in runtimes.values():
            runtime.close()
    columns = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = [[source, *(number(row.get(name), 4 if name == "by program" else 2) for name in columns)]
            for source, row in found.items()]
    print(markdown(["ms", *columns], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
