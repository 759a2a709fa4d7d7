"""Users' kernels and families from Python on a GPU: PyTorch, CuPy and JAX arrays, streams, graphs, globals."""

import importlib.util
import struct
import tempfile
import unittest
from pathlib import Path

import kjit
from gpu_torch import DEVICE, HAS_GPU, needs_gpu, torch

SOURCE = """
__constant__ float table[4];
struct Pair { float add; int first; };
extern "C" __global__ void axpy(float *y, const float *x, float s, int n, Pair pair, double bias) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pair.first && i < n) y[i] = s * x[i] + y[i] + pair.add + static_cast<float>(bias) + table[i & 3];
}
extern "C" __global__ void wait(long long cycles) {
  for (const long long begin = clock64(); clock64() - begin < cycles;) {}
}
template <class T, int K> __global__ void fill(T *x, long long n) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) x[i] = T(K);
}
"""
FILL = "fill<float, 4>"
FAMILY = """
family: scaled
source: scaled.cu
entry: scaled
fields:
  dtype: {kind: dtype, values: [fp16, bf16, fp32]}
  threads: {kind: int, values: [64, 128]}
block: threads
grid: divup(count, threads)
parameters: {y: "dtype*", x: "const dtype*", factor: float, count: int32}
"""
SCALED = """
#if KJIT_dtype == KJIT_fp32
using Element = float;
__device__ float read(Element x) { return x; }
__device__ Element made(float x) { return x; }
#elif KJIT_dtype == KJIT_bf16
using Element = unsigned short;
__device__ float read(Element x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }
__device__ Element made(float x) { Element y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
#else
using Element = unsigned short;
__device__ float read(Element x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ Element made(float x) { Element y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
#endif
extern "C" __global__ void scaled(Element *y, const Element *x, float factor, int count) {
  const int i = blockIdx.x * KJIT_threads + threadIdx.x;
  if (i < count) y[i] = made(read(x[i]) * factor);
}
"""

_made = {}


def module():
    if not _made:
        _made["module"] = kjit.Module(SOURCE, names=[FILL])
        _made["module"].write_global("table", bytes(16))
    return _made["module"]


def needs(name):
    return unittest.skipUnless(HAS_GPU and importlib.util.find_spec(name), f"{name} with a GPU is not here")


@needs_gpu
class Torch(unittest.TestCase):
    def arrays(self, count=1000):
        return torch.randn(count, device=DEVICE), torch.randn(count, device=DEVICE)

    def test_kernel__computes_with_arguments_of_every_kind(self):
        x, y = self.arrays()
        expected = y.clone()
        expected[3:990] += 2 * x[3:990] + 0.75
        module()["axpy"][4, 256](y, x, 2.0, 990, struct.pack("fi", 0.5, 3), 0.25)
        torch.testing.assert_close(y, expected)

    def test_template__is_found_by_its_expression(self):
        x = torch.empty(100, device=DEVICE)
        module()[FILL][1, 128](x, 100)
        self.assertTrue((x == 4).all())

    def test_global__is_read_and_written_in_the_order_of_the_stream(self):
        own = kjit.Module(SOURCE, defines={"OTHER": 1})
        own.write_global("table", struct.pack("4f", 1, 2, 3, 4))
        x, y = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
        own["axpy"][1, 4](y, x, 0.0, 4, bytes(8), 0.0)
        self.assertEqual(y.tolist(), [1, 2, 3, 4])
        self.assertEqual(struct.unpack("4f", own.read_global("table")), (1, 2, 3, 4))

    def test_stream__is_the_current_one(self):
        x = torch.zeros(1 << 20, device=DEVICE)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        # Loaded before: what is loaded at its first launch could take longer than the wait.
        module()["wait"][1, 1](1)
        module()[FILL][1, 256](x, 0)
        torch.cuda.synchronize()
        # The wait, of a tenth of a second, is put on the stream by name: it has no array that says where it belongs.
        module()["wait"][1, 1, 0, stream](200_000_000)
        with torch.cuda.stream(stream):
            module()[FILL][1 << 12, 256](x, 1 << 20)
            doubled = x * 2
        # The default stream does not wait for this one: a kernel that had gone there would have filled x by now.
        self.assertEqual(x[0].item(), 0)
        self.assertFalse(stream.query())
        stream.synchronize()
        self.assertTrue((doubled == 8).all())

    def test_stream__may_be_named(self):
        x = torch.zeros(100, device=DEVICE)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        module()[FILL].launch(1, 128, (x, 100), stream=stream)
        stream.synchronize()
        self.assertTrue((x == 4).all())

    def test_graph__captures_a_launch(self):
        x = torch.zeros(100, device=DEVICE)
        kernel = module()[FILL]
        kernel[1, 128](x, 100)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel[1, 128](x, 100)
        x.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue((x == 4).all())

    def test_tensor__in_host_memory_is_named(self):
        with self.assertRaisesRegex(TypeError, r"args\[0\]: Tensor in host memory"):
            module()[FILL][1, 128](torch.zeros(4), 4)

    def test_family__computes_for_every_type(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "scaled.cu").write_text(SCALED)
            family = kjit.Family.parse(FAMILY, folder=folder)
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            x, y = (torch.randn(1000, device=DEVICE, dtype=dtype) for _ in range(2))
            kernel = family.get(family.Config(dtype=dtype, threads=128))
            kernel.launch(None, y, x, 0.5, 1000)
            torch.testing.assert_close(y, x * 0.5)
            with self.assertRaisesRegex(TypeError, r"args\[1\] \(x\): an array of fp64: must be of"):
                kernel(y, x.double(), 0.5, 1000)

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not installed")
    def test_numpy_scalars__have_their_own_type(self):
        import numpy

        x, y = self.arrays()
        pair = numpy.array((0.5, 3), dtype=[("add", "f4"), ("first", "i4")])[()]
        expected = y.clone()
        expected[3:990] += 2 * x[3:990] + 0.75
        module()["axpy"][4, 256](y, x, numpy.float32(2), numpy.int32(990), pair, numpy.float64(0.25))
        torch.testing.assert_close(y, expected)
        with self.assertRaisesRegex(TypeError, r"args\[3\]: int64 of 8 bytes: must be 4 bytes"):
            module()["axpy"][4, 256](y, x, 2.0, numpy.int64(990), pair, 0.25)

    def test_occupancy__is_some(self):
        found = module()["axpy"].occupancy(256)
        self.assertGreater(found.blocks, 0)
        self.assertGreaterEqual(found.block_threads, 32)

    def test_launch__costs_microseconds(self):
        import time

        x, y = self.arrays()
        launcher, pair, best = module()["axpy"][4, 256], struct.pack("fi", 0.5, 3), 1.0
        for _ in range(20):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(200):
                launcher(y, x, 0.0, 990, pair, 0.25)
            best = min(best, (time.perf_counter() - started) / 200)
        print(f"    launch of six arguments: {best * 1e6:.2f} us", flush=True)
        self.assertLess(best, 2e-5)  # the driver's own part is 4 us and more, by the host


@needs("cupy")
class CuPy(unittest.TestCase):
    def test_kernel__on_the_current_stream(self):
        import cupy

        with cupy.cuda.Stream(non_blocking=True) as stream:
            x, y = cupy.arange(1000, dtype="float32"), cupy.ones(1000, dtype="float32")
            module()["axpy"][4, 256](y, x, 2.0, 1000, bytes(8), 0.5)
            result = y + 0
        stream.synchronize()
        self.assertTrue((result == x * 2 + 1.5).all())

    def test_raw_kernel__does_what_cupys_does(self):
        import cupy

        code = 'extern "C" __global__ void twice(float *y, const float *x, int n) {\n'
        code += "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = 2 * x[i];\n}\n"
        x = cupy.arange(100, dtype="float32")
        results = []
        for package in (kjit, cupy):
            y = cupy.zeros_like(x)
            package.RawKernel(code, "twice")((1,), (128,), (y, x, cupy.int32(100)))
            results.append(y)
        self.assertTrue((results[0] == results[1]).all())

    def test_global__is_a_memory_pointer(self):
        import cupy

        raw = kjit.RawModule(code=SOURCE, name_expressions=[FILL])
        pointer = raw.get_global("table")
        cupy.ndarray(4, "float32", pointer)[:] = 3
        x, y = cupy.zeros(4, "float32"), cupy.zeros(4, "float32")
        raw.get_function("axpy")((1,), (4,), (y, x, 0.0, 4, bytes(8), 0.0))
        self.assertEqual(y.tolist(), [3, 3, 3, 3])


@needs("jax")
class Jax(unittest.TestCase):
    def test_kernel__writes_a_fresh_array(self):
        import jax

        if jax.default_backend() != "gpu":
            self.skipTest("JAX has no GPU here")
        x = jax.numpy.arange(100, dtype="float32")
        y = jax.block_until_ready(jax.numpy.zeros(100, dtype="float32") + 1)
        module()["axpy"][1, 128](y, x, 2.0, 100, bytes(8), 0.0)
        self.assertTrue(bool((y == x * 2 + 1).all()))


if __name__ == "__main__":
    unittest.main()
