"""Users' kernels and a user's family from Python on the emulator of tests/emulator: what they compute. No GPU."""

import ctypes
import os
import struct
import sys
import tempfile
import unittest
from pathlib import Path

import harness
import kjit
from arrays import InterfaceArray
from kjit import _cuda

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])

SOURCE = """
struct Pair { float add; int first; };
extern "C" __global__ void axpy(float *y, const float *x, float s, int n, Pair pair, double bias) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pair.first && i < n) y[i] = s * x[i] + y[i] + pair.add + static_cast<float>(bias);
}
"""


SCALE = """
extern "C" __global__ void scale(KJIT_dtype_type *out, const KJIT_dtype_type *in, float factor, int count) {
  const int first = (blockIdx.x * KJIT_threads + threadIdx.x) * KJIT_each;
  for (int i = first; i < first + KJIT_each && i < count; i++) {
    const float value = factor * static_cast<float>(in[i]);
    out[i] = static_cast<KJIT_dtype_type>(KJIT_mode == KJIT_mode_squared ? value * value : value);
  }
}
"""
SCALE_FAMILY = """
family: scale
source: scale.cu
entry: scale
fields:
  dtype: {kind: dtype, values: [fp32]}
  threads: {kind: int, values: [32, 64]}
  each: {kind: int, range: [1, 16]}
  mode: {kind: enum, values: [plain, squared], default: plain}
block: threads
grid: divup(count, threads * each)
parameters: {out: "dtype*", in: "const dtype*", factor: float, count: int32}
"""


class Pair(ctypes.Structure):
    _fields_ = [("add", ctypes.c_float), ("first", ctypes.c_int)]


def device_array(values, dtype="float32"):
    """An array in the emulated device's memory, which this process reaches too."""
    code = {"float32": "f", "float16": "e"}[dtype]
    content = struct.pack(f"{len(values)}{code}", *values)
    address = ctypes.c_uint64()
    with _cuda.device(0):
        assert DRIVER.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(len(content))) == 0
    ctypes.memmove(address.value, content, len(content))
    array = InterfaceArray(len(values), dtype, struct.calcsize(code), data=address.value)
    array.read = lambda: struct.unpack(f"{len(values)}{code}", ctypes.string_at(address.value, len(content)))
    return array


class Emulated(unittest.TestCase):
    def test_module__computes_with_arguments_of_every_kind(self):
        count = 70
        x, y = device_array([float(i) for i in range(count)]), device_array([1.0] * count)
        kjit.Module(SOURCE)["axpy"][3, 32](y, x, 2.0, count - 5, Pair(0.5, 3), 0.25)
        expected = [2.0 * i + 1.75 if 3 <= i < count - 5 else 1.0 for i in range(count)]
        self.assertEqual(list(y.read()), expected)

    def test_raw_kernel__computes(self):
        x, y = device_array([3.0] * 32), device_array([0.0] * 32)
        kjit.RawKernel(SOURCE, "axpy")((1,), (32,), (y, x, 2.0, 32, Pair(0, 0), 0.0))
        self.assertEqual(set(y.read()), {6.0})

    def test_family__computes_with_its_constants(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "scale.cu").write_text(SCALE)
            family = kjit.Family.parse(SCALE_FAMILY, folder=folder)
        count = 150
        source = device_array([float(i) for i in range(count)], "float32")
        for config in ("threads=64,each=2,dtype=fp32", "threads=32,each=3,dtype=fp32,mode=squared"):
            out = device_array([-1.0] * count)
            family.get(config).launch(None, out, source, 0.5, count - 1)
            squared = "squared" in config
            expected = [(0.5 * i) ** (1 + squared) for i in range(count - 1)]
            self.assertEqual(list(out.read()), expected + [-1.0])


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
