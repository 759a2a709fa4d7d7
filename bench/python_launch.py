#!/usr/bin/env python3
"""Times what a kernel of one's own costs from Python: launches and repeated requests, beside CuPy and cuda.core.

usage: python_launch.py [--calls N] [--rounds N] [--json FILE]

A launch is of five arguments (three arrays, an int, a float), one block of one thread. The ways take turns, round by
round, so that what else the machine does meets all alike; the figure is the median over the rounds of a round's mean.
Arrays are PyTorch's where it is there, CuPy's for CuPy, else of __cuda_array_interface__. A way that is not installed
is named and left out. "bare" is cuLaunchKernel() by ctypes with its arguments made beforehand: what a call costs at
least.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time

import kjit
from kjit import _cuda, _native_part

SOURCE = """
extern "C" __global__ void five(float *a, const float *b, const float *c, int n, float s) {
  if (n > 1 << 30) a[threadIdx.x] = b[threadIdx.x] + c[threadIdx.x] * s;
}
"""


class Interface:
    """An array without a framework: its memory is the driver's, or only said to be there."""

    def __init__(self, address):
        facts = {"shape": (64,), "typestr": "<f4", "data": (address, False), "version": 3, "stream": None}
        self.__cuda_array_interface__ = facts
        self.address = address


def own_arrays():
    memory = ctypes.c_uint64(1 << 30)
    function = getattr(_cuda.driver(), "cuMemAlloc_v2", None)
    if function is not None and function(ctypes.byref(memory), ctypes.c_size_t(4096)) != 0:
        memory.value = 1 << 30
    return [Interface(memory.value + 1024 * index) for index in range(3)]


def torch_arrays():
    import torch

    return [torch.zeros(64, device="cuda") for _ in range(3)] if torch.cuda.is_available() else None


def synchronize():
    _cuda.driver().cuCtxSynchronize()


def bare(kernel, arrays):
    """cuLaunchKernel() with everything made beforehand."""
    values = [ctypes.c_uint64(array.address) for array in arrays] + [ctypes.c_int(7), ctypes.c_float(0.5)]
    pointers = (ctypes.c_void_p * 5)(*(ctypes.addressof(value) for value in values))
    function = ctypes.c_void_p(kernel.handles().kernel)
    launch = _cuda.driver().cuLaunchKernel
    one, zero, none = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_void_p()
    keep = values

    def run():
        launch(function, one, one, one, one, one, one, zero, none, pointers, none)
        return keep

    return run


def cupy_way(ways):
    import cupy

    kernel = cupy.RawKernel(SOURCE, "five")
    a, b, c = (cupy.zeros(64, dtype=cupy.float32) for _ in range(3))
    n, s = cupy.int32(7), cupy.float32(0.5)
    ways[f"CuPy {cupy.__version__} RawKernel"] = lambda: kernel((1,), (1,), (a, b, c, n, s))
    own = kjit.RawKernel(SOURCE, "five")
    ways["kjit RawKernel, CuPy's arrays"] = lambda: own((1,), (1,), (a, b, c, n, s))


def cuda_core_way(ways, arrays):
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    stream = device.create_stream()
    arch = "sm_" + "".join(map(str, device.compute_capability))
    program = Program(SOURCE, code_type="c++", options=ProgramOptions(arch=arch))
    kernel = program.compile("cubin").get_kernel("five")
    config = LaunchConfig(grid=1, block=1)
    n, s = ctypes.c_int(7), ctypes.c_float(0.5)
    a, b, c = (array.address for array in arrays)
    ways["cuda.core launch, addresses as ints"] = lambda: launch(stream, config, kernel, a, b, c, n, s)


def launch_ways():
    ways, missing = {}, {}
    arrays = own_arrays()
    module = kjit.Module(SOURCE)
    kernel = module["five"]
    ways["bare cuLaunchKernel by ctypes"] = bare(kernel, arrays)
    a, b, c = arrays
    ways["kjit, __cuda_array_interface__"] = lambda: kernel[1, 1](a, b, c, 7, 0.5)
    numbers = [array.address for array in arrays]
    ways["kjit, addresses as ints"] = lambda: kernel[1, 1](*numbers, 7, 0.5)
    from kjit.kernel import Shape

    shape = Shape(1, 1)
    ways["kjit in Python alone, the same"] = lambda: kernel._enqueue(shape, None, (*numbers, 7, 0.5))
    try:
        tensors = torch_arrays()
        if tensors:
            x, y, z = tensors
            ways["kjit, PyTorch's tensors"] = lambda: kernel[1, 1](x, y, z, 7, 0.5)
            ready = kernel[1, 1]
            ways["kjit, PyTorch's tensors, launcher kept"] = lambda: ready(x, y, z, 7, 0.5)
            ways["kjit in Python alone, PyTorch's"] = lambda: kernel._enqueue(shape, None, (x, y, z, 7, 0.5))
    except ImportError as fault:
        missing["PyTorch"] = str(fault)
    for name, add in (("CuPy", lambda: cupy_way(ways)), ("cuda.core", lambda: cuda_core_way(ways, arrays))):
        try:
            add()
        except Exception as fault:  # whatever another library cannot do here is no failure of this measurement
            missing[name] = f"{type(fault).__name__}: {fault}".splitlines()[0][:100]
    return ways, missing


def hit_ways():
    """Repeated requests for what is in memory."""
    arch = kjit.default_runtime().device_arch(specific=True)
    program = kjit.Program(SOURCE, arch=arch)
    fp16 = "#include <cuda_fp16.h>\n" + SOURCE
    with_header = bool(kjit.doctor().get("nvrtc_path"))
    ways = {
        "kjit.compile_source()": lambda: kjit.compile_source(SOURCE, "five", arch),
        "kjit.Module()": lambda: kjit.Module(SOURCE),
        "kjit.Program.get()": lambda: program.get("five"),
    }
    if with_header:
        try:
            kjit.compile_source(fp16, "five", arch)
            ways["kjit.compile_source(), <cuda_fp16.h>"] = lambda: kjit.compile_source(fp16, "five", arch)
        except kjit.Error:
            pass
    return ways


def measure(ways, calls, rounds, between):
    """Microseconds of a call by way: the median of the rounds' means."""
    found = {name: [] for name in ways}
    for name, run in ways.items():
        run()
    for _ in range(rounds):
        for name, run in ways.items():
            between()
            repeat = range(calls)
            start = time.perf_counter_ns()
            for _ in repeat:
                run()
            found[name].append((time.perf_counter_ns() - start) / calls / 1000)
    between()
    return {name: (statistics.median(times), min(times)) for name, times in found.items()}


def show(title, found):
    print(f"{title:<44} {'median us':>10} {'least us':>10}")
    for name, (median, least) in found.items():
        print(f"  {name:<42} {median:>10.2f} {least:>10.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--calls", type=int, default=500, help="of a way in one turn")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json")
    asked = parser.parse_args()
    _cuda.make_current(0)
    ways, missing = launch_ways()
    launches = measure(ways, asked.calls, asked.rounds, synchronize)
    hits = measure(hit_ways(), min(asked.calls, 200), min(asked.rounds, 30), lambda: None)
    how = _native_part.MISSING or "in C"
    print(f"Python {sys.version.split()[0]}, launches {how}, load average {os.getloadavg()[0]:.1f}")
    show("launch of five arguments", launches)
    show("a request whose kernel is in memory", hits)
    for name, why in missing.items():
        print(f"not measured: {name}: {why}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"launches": launches, "hits": hits, "missing": missing}, file, indent=2)


if __name__ == "__main__":
    main()
