"""Users' modules from Python down to a driver that only counts: arguments, streams, devices, globals, errors. No GPU.

The kernels are compiled by the real NVRTC, so that the parameter tables are those of real code.
"""

import array
import ctypes
import gc
import math
import os
import struct
import sys
import threading
import time
import types
import unittest
from unittest import mock

import harness
import kjit
from arrays import Array, InterfaceArray
from kjit import _cuda

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
DRIVER.asked_stream.restype = ctypes.c_void_p
DRIVER.asked_args.restype = ctypes.c_void_p
DRIVER.asked_parameters.argtypes = [ctypes.c_size_t, ctypes.c_size_t]

SOURCE = """
struct Pair { float a; int b; };
__constant__ float table[4];
__device__ int hidden;
extern "C" __global__ void mixed(float *x, int n, double d, Pair pair, bool flag, float f) {
  x[0] = n + d + pair.a + pair.b + flag + f + table[n & 3] + hidden;
}
extern "C" __global__ void scale(float *x, const float *y, float s, int n) { x[n] = y[n] * s; }
extern "C" __global__ void small(signed char c, short s, unsigned char b) {}
extern "C" __global__ void five(float *a, float *b, float *c, int n, float s) { a[n] = b[n] + c[n] * s; }
extern "C" __global__ void nothing() {}
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
extern "C" __global__ void mapped(const __grid_constant__ CUtensorMap_st map, int n) {}
namespace n { template <class T, int k> __global__ void fill(T *x) { x[threadIdx.x] = k; } }
"""
FILL = "n::fill<float, 4>"


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_int)]


class OnFakeDriver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if kjit.doctor()["nvrtc_status"] != 0:
            raise unittest.SkipTest("NVRTC is not installed")
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        cls.module = kjit.Module(SOURCE, names=[FILL, "&hidden"])

    def setUp(self):
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        self.addCleanup(DRIVER.asked_to_fail, 0)
        DRIVER.asked_parameters(0, 8)  # the fake reads no argument but where a case wants it
        self.before = DRIVER.asked_launches()
        self.waited = DRIVER.asked_synchronized()

    def launched(self):
        return DRIVER.asked_launches() - self.before

    def arguments(self, kernel, *args, each=8):
        """The bytes that the driver gets for each argument, as many as it has bytes."""
        DRIVER.asked_parameters(len(args), each)
        kernel[1, 1](*args)
        DRIVER.asked_parameters(0, each)
        found = ctypes.string_at(DRIVER.asked_args(), len(args) * each)
        return [found[index * each :][:size] for index, size in enumerate(kernel.parameters)]


class Arguments(OnFakeDriver):
    def test_parameters__have_the_sizes_of_the_code(self):
        self.assertEqual(self.module["mixed"].parameters, (8, 4, 8, 8, 1, 4))
        self.assertEqual(self.module["nothing"].parameters, ())

    def test_values__reach_the_driver_in_the_parameters_sizes(self):
        x = InterfaceArray()
        found = self.arguments(self.module["mixed"], x, -3, 2.5, Pair(1.5, 7), True, 0.25)
        expected = ["<Q", "<i", "<d", "<fi", "<?", "<f"], [(x.data,), (-3,), (2.5,), (1.5, 7), (True,), (0.25,)]
        self.assertEqual([struct.unpack(kind, each) for kind, each in zip(expected[0], found)], expected[1])

    def test_integers__of_the_whole_range_signed_or_not_are_taken(self):
        for values in ((-128, -32768, 0), (127, 32767, 255), (255, 65535, 128)):
            found = self.arguments(self.module["small"], *values)
            wanted = [value & ((1 << 8 * size) - 1) for value, size in zip(values, (1, 2, 1))]
            self.assertEqual([int.from_bytes(each, "little") for each in found], wanted)

    def test_integers__that_do_not_fit_are_named_by_their_index(self):
        for values, index in (((256, 0, 0), 0), ((0, -32769, 0), 1), ((0, 0, -129), 2), ((0, 1 << 70, 0), 1)):
            with self.assertRaisesRegex(OverflowError, rf"^args\[{index}\]: -?\d+: must be -\d+ to \d+, to fit"):
                self.module["small"][1, 1](*values)
        self.assertEqual(self.launched(), 0)

    def test_float__beyond_its_range_is_named(self):
        with self.assertRaisesRegex(OverflowError, r"^args\[2\]: 1e\+39: beyond the range of float"):
            self.module["scale"][1, 1](None, None, 1e39, 0)
        self.arguments(self.module["scale"], None, None, math.inf, 0)

    def test_float__for_a_parameter_of_two_bytes_is_refused(self):
        with self.assertRaisesRegex(TypeError, r"^args\[1\]: the number 1.0 for a parameter of 2 bytes"):
            self.module["small"][1, 1](0, 1.0, 0)

    def test_count__that_is_wrong_is_named(self):
        with self.assertRaisesRegex(TypeError, r'kernel "scale" takes 4 arguments: 3 were given'):
            self.module["scale"][1, 1](None, None, 1.0)

    def test_none__is_a_null_pointer_and_nothing_else(self):
        self.assertEqual(self.arguments(self.module["scale"], None, None, 1.0, 0)[0], bytes(8))
        with self.assertRaisesRegex(TypeError, r"^args\[3\]: None for a parameter of 4 bytes"):
            self.module["scale"][1, 1](None, None, 1.0, None)

    def test_bytes__must_be_as_many_as_the_parameter_has(self):
        found = self.arguments(self.module["mixed"], None, b"\1\0\0\0", 1.0, bytes(range(8)), False, 0.0)
        self.assertEqual(found[3], bytes(range(8)))
        with self.assertRaisesRegex(TypeError, r"^args\[3\]: bytes of 7 bytes: must be 8 bytes"):
            self.module["mixed"][1, 1](None, 1, 1.0, bytes(7), False, 0.0)

    def test_what_is_no_argument__is_said(self):
        with self.assertRaisesRegex(TypeError, r"^args\[1\]: list: must be an array on the GPU, a number"):
            self.module["scale"][1, 1](None, [1], 1.0, 0)

    def test_array__for_a_number_is_refused(self):
        with self.assertRaisesRegex(TypeError, r"^args\[2\]: InterfaceArray for a parameter of 4 bytes"):
            self.module["scale"][1, 1](None, None, InterfaceArray(), 0)

    def test_numpy_scalars__have_their_own_type(self):
        """By stand-ins, as NumPy need not be installed; gpu_modules.py has the real ones."""

        class int64:
            __module__, shape = "numpy", ()

            def tobytes(self):
                return bytes(8)

        class float32(int64):
            __module__ = "numpy"

            def tobytes(self):
                return struct.pack("<f", 0.1)

        class ndarray(int64):
            __module__, shape, __array_interface__ = "numpy", (4,), {}

        self.assertEqual(self.arguments(self.module["scale"], None, None, float32(), 5)[2], struct.pack("<f", 0.1))
        with self.assertRaisesRegex(TypeError, r"^args\[3\]: int64 of 8 bytes: must be 4 bytes"):
            self.module["scale"][1, 1](None, None, 1.0, int64())
        with self.assertRaisesRegex(TypeError, r"^args\[0\]: ndarray in host memory"):
            self.module["scale"][1, 1](ndarray(), None, 1.0, 1)

    def test_arrays__begin_where_their_first_element_is(self):
        x = Array(4, 4, data=4096)
        self.assertEqual(self.arguments(self.module["scale"], x, x, 1.0, 0)[0], struct.pack("<Q", 4096 + Array.OFFSET))

    def test_array__in_host_memory_is_named(self):
        with self.assertRaisesRegex(TypeError, r"^args\[1\]: Array in host memory: must be an array on the GPU"):
            self.module["scale"][1, 1](Array(4), Array(4, host=True), 1.0, 0)


class Shapes(OnFakeDriver):
    def shape(self):
        found = (ctypes.c_uint * 10)()
        DRIVER.asked_shape(found)
        return [tuple(found[:3]), tuple(found[3:6]), tuple(found[6:9]), found[9]]

    def test_brackets__say_grid_block_shared_and_stream(self):
        self.module["nothing"][(2, 3), 64, 1024, 0x5500]()
        self.assertEqual(self.shape(), [(2, 3, 1), (64, 1, 1), (0, 0, 0), 1024])
        self.assertEqual(DRIVER.asked_stream(), 0x5500)
        self.module["nothing"][5, (2, 2, 2)]()
        self.assertEqual((self.shape()[:2], DRIVER.asked_stream()), ([(5, 1, 1), (2, 2, 2)], None))

    def test_launch__says_clusters_and_attributes_once(self):
        kernel = self.module["nothing"]
        kernel.launch(4, 32, cluster=2, cooperative=True, priority=-1)
        self.assertEqual(self.shape()[2], (2, 1, 1))
        self.assertEqual(DRIVER.asked_attribute(2), 1)  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        kernel[4, 32]()
        self.assertEqual((self.shape()[2], DRIVER.asked_attribute(2)), ((0, 0, 0), -1))

    def test_shape__that_is_none_is_refused(self):
        kernel = self.module["nothing"]
        for how, words in (
            ((-1, 1), "grid is -1: each number must be 0"),
            ((1 << 32, 1), "grid is 4294967296"),
            ((1, (1, 1, 1, 1)), r"block is \(1, 1, 1, 1\): must be a number"),
            ((1, 1, -5), "shared is -5"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                kernel[how]
        with self.assertRaisesRegex(kjit.InvalidArgument, r"launch\.grid\[0\]: 0; an empty grid"):
            kernel[0, 1]()
        with self.assertRaisesRegex(TypeError, "a kernel is launched by"):
            kernel[1]

    def test_occupancy__is_the_drivers(self):
        found = self.module["nothing"].occupancy(256)
        self.assertEqual(found, (8, 0, 512, 264))

    def test_handles__are_the_drivers(self):
        self.assertTrue(all(self.module["nothing"].handles()))


class Streams(OnFakeDriver):
    def test_interface__on_the_stream_that_it_names(self):
        self.module["scale"][1, 1](InterfaceArray(stream=0x6600), None, 1.0, 0)
        self.assertEqual((DRIVER.asked_stream(), DRIVER.asked_synchronized()), (0x6600, self.waited))

    def test_dlpack__on_the_default_stream_and_waited_for(self):
        x = Array(4)
        self.module["scale"][1, 1](x, None, 1.0, 0)
        self.assertEqual((DRIVER.asked_stream(), x.asked), (None, [1]))
        self.assertEqual(DRIVER.asked_synchronized(), self.waited + 1)

    def test_stream__that_is_named_is_not_waited_for(self):
        self.module["scale"][1, 1, 0, 0x7700](Array(4), None, 1.0, 0)
        self.assertEqual((DRIVER.asked_stream(), DRIVER.asked_synchronized()), (0x7700, self.waited))

    def test_streams__of_frameworks_are_known(self):
        torch, cupy = types.SimpleNamespace(cuda_stream=5), types.SimpleNamespace(ptr=6)
        core = types.SimpleNamespace(__cuda_stream__=lambda: (0, 7))
        for stream, number in ((torch, 5), (cupy, 6), (core, 7), (ctypes.c_void_p(8), 8)):
            self.module["nothing"][1, 1, 0, stream]()
            self.assertEqual(DRIVER.asked_stream(), number)
        with self.assertRaisesRegex(TypeError, "stream is a str"):
            self.module["nothing"][1, 1, 0, "fast"]()

    def test_cupy__on_its_current_stream(self):
        class CuPyArray:
            __module__ = "cupy"
            data, device = types.SimpleNamespace(ptr=0x9000), types.SimpleNamespace(id=0)

        stream = types.SimpleNamespace(ptr=0x7700)
        module = types.SimpleNamespace(cuda=types.SimpleNamespace(get_current_stream=lambda: stream))
        with mock.patch.dict(sys.modules, cupy=module):
            self.module["scale"][1, 1](CuPyArray(), None, 1.0, 0)
        self.assertEqual((DRIVER.asked_stream(), DRIVER.asked_synchronized()), (0x7700, self.waited))

    def test_jax__is_waited_for_before_and_after(self):
        class JaxArray(Array):
            __module__ = "jax"

        ready = []
        module = types.SimpleNamespace(
            core=types.SimpleNamespace(Tracer=type("Tracer", (), {})),
            block_until_ready=lambda each: ready.append(each) or each,
        )
        x = JaxArray(4)
        with mock.patch.dict(sys.modules, jax=module):
            self.module["scale"][1, 1](x, None, 1.0, 0)
        self.assertEqual((ready, DRIVER.asked_synchronized()), ([x], self.waited + 1))

    def test_torch__on_the_current_stream_of_the_tensors_device(self):
        class Tensor:
            def data_ptr(self):
                return 0x9000

            def get_device(self):
                return 0

        raw = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0x5500 + device)
        module = types.SimpleNamespace(Tensor=Tensor, _C=raw)
        with mock.patch.dict(sys.modules, torch=module), mock.patch.object(_cuda, "current_ordinal", lambda: 0):
            self.module["scale"][1, 1](Tensor(), None, 1.0, 0)
        self.assertEqual(DRIVER.asked_stream(), 0x5500)

    def test_device__of_the_arrays_is_current_inside_alone(self):
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(2))
        self.module["scale"][1, 1](Array(4, device=0), None, 1.0, 0)
        self.assertEqual((self.launched(), DRIVER.asked_current()), (1, 1))

    def test_arrays__of_two_devices_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"^args\[1\]: on device 1: the arrays before it are on device 0"):
            self.module["scale"][1, 1](Array(4, device=0), Array(4, device=1), 1.0, 0)

    def test_thread__without_a_context_gets_one(self):
        faults = []

        def work():
            DRIVER.cuCtxSetCurrent(None)
            try:
                self.module["nothing"][1, 1]()
            except BaseException as fault:
                faults.append(fault)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual((faults, self.launched()), ([], 1))

    def test_threads__launch_at_once(self):
        kernel, faults = self.module["scale"], []

        def work():
            try:
                for index in range(200):
                    kernel[1, 1](None, None, 1.0, index)
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((faults, self.launched()), ([], 1600))

    def test_launch__that_fails_is_an_error_and_the_next_one_is_none(self):
        DRIVER.asked_to_fail(1)
        with self.assertRaisesRegex(kjit.DriverError, 'launching kernel "nothing": CUDA_ERROR_UNKNOWN'):
            self.module["nothing"][1, 1]()
        DRIVER.asked_to_fail(0)
        self.module["nothing"][1, 1]()


class Modules(OnFakeDriver):
    def test_kernel__is_found_by_its_expression_and_by_its_name_in_the_code(self):
        kernel = self.module[FILL]
        self.assertIs(self.module.kernel(FILL), kernel)
        self.assertEqual((kernel.info.expression, kernel.parameters), (FILL, (8,)))
        self.assertEqual(self.module[kernel.info.name].parameters, (8,))
        self.assertGreater(kernel.info.registers, 0)

    def test_kernel__that_is_not_there_is_an_error_that_lists_those_that_are(self):
        with self.assertRaisesRegex(kjit.NotFound, "nothing"):
            self.module["absent"]

    def test_artifact__is_what_was_compiled(self):
        self.assertEqual(self.module.artifact.cubin[:4], b"\x7fELF")
        self.assertEqual(self.module.artifact.arch, "sm_90a")
        self.assertIn("scale", [info.name for info in self.module.kernels])

    def test_source__that_does_not_compile_has_a_log(self):
        with self.assertRaises(kjit.CompileError) as caught:
            kjit.Module("__global__ void k() { oops; }", name="bad.cu")
        self.assertIn('bad.cu(1): error: identifier "oops" is undefined', caught.exception.log)

    def test_defines_headers_options__are_those_of_the_compiler(self):
        source = '#include "a.cuh"\nextern "C" __global__ void k(float *x) { *x = VALUE * N; }'
        kjit.Module(source, headers={"a.cuh": "#define VALUE 2\n"}, defines={"N": 3}, options=("--use_fast_math",))["k"]
        with self.assertRaisesRegex(TypeError, "options is '-lineinfo': must be several texts"):
            kjit.Module(source, options="-lineinfo")

    def test_globals__are_read_and_written(self):
        found = self.module.get_global("table")
        self.assertGreater(found.bytes, 0)
        self.module.write_global("table", array.array("f", [1.5, 2.5]))
        self.assertEqual(struct.unpack("<2f", self.module.read_global("table", 8)), (1.5, 2.5))
        self.module.write_global("&hidden", b"\7\0\0\0", offset=4)
        self.assertEqual(self.module.read_global("table", 4, offset=4), b"\7\0\0\0")
        with self.assertRaises(kjit.InvalidArgument):
            self.module.write_global("table", bytes(found.bytes + 1))

    def test_tensor_map__is_an_argument_of_128_bytes(self):
        made = kjit.TensorMap(Array(128, 64), box=(64, 64), swizzle="128b")
        self.assertEqual(len(made.kjit_bytes()), 128)
        self.module["mapped"][1, 1](made, 1)
        with self.assertRaisesRegex(kjit.InvalidArgument, "box"):
            kjit.TensorMap(Array(128, 64), box=(64, 300))
        with self.assertRaisesRegex(ValueError, "swizzle is '127b'"):
            kjit.TensorMap(Array(128, 64), box=(64, 64), swizzle="127b")
        with self.assertRaisesRegex(ValueError, "box has 1 numbers: must have 2"):
            kjit.TensorMap(Array(128, 64), box=(64,))

    def test_module__gone_leaves_its_kernels_alive(self):
        module = kjit.Module('extern "C" __global__ void alone() {}')
        kernel = module["alone"]
        del module
        gc.collect()
        kernel[1, 1]()
        self.assertEqual(self.launched(), 1)

    def test_kernel__of_a_runtime_that_was_closed_is_refused(self):
        with kjit.Runtime(cache_mode="off") as runtime:
            kernel = kjit.Module('extern "C" __global__ void alone() {}', runtime=runtime)["alone"]
            kernel[1, 1]()
        with self.assertRaisesRegex(kjit.InvalidArgument, "kernel"):
            kernel[1, 1]()

    def test_program__again_is_the_same_artifact(self):
        program = kjit.Program(SOURCE, arch="sm_90a")
        first = program.get("scale")
        self.assertIs(program.get("scale"), first)
        self.assertNotEqual(program.get("scale", defines={"EXTRA": 1}).key, first.key)
        self.assertEqual(first.entry, "scale")

    def test_part__that_is_a_cubin_is_loaded_as_it_is(self):
        module = kjit.Module(None, parts=[kjit.Part("cubin", self.module.artifact.cubin)])
        self.assertEqual(module["scale"].parameters, (8, 8, 4, 4))


class Raw(OnFakeDriver):
    """CuPy's signatures."""

    def test_kernel__is_launched_as_cupys(self):
        kernel = kjit.RawKernel(SOURCE, "scale", options=("-DEXTRA=1", "-I", "/nowhere", "--std=c++17"))
        kernel((4,), (32,), (InterfaceArray(), None, 1.5, 7), shared_mem=64)
        self.assertEqual(self.launched(), 1)
        self.assertEqual((kernel.name, kernel.backend, kernel.local_size_bytes), ("scale", "nvrtc", 0))
        self.assertGreater(kernel.attributes["num_regs"], 0)

    def test_kernel__may_be_a_name_expression(self):
        kjit.RawKernel(SOURCE, FILL)((1,), (1,), (InterfaceArray(),))
        self.assertEqual(self.launched(), 1)

    def test_module__gives_functions_and_globals(self):
        module = kjit.RawModule(code=SOURCE, name_expressions=[FILL])
        module.get_function(FILL)((1,), (1,), (InterfaceArray(),))
        module.get_function("nothing")((1,), (1,), ())
        self.assertGreater(module.get_global("table").bytes, 0)
        self.assertEqual(self.launched(), 2)

    def test_module__of_a_file_is_loaded(self):
        with unittest.mock.patch.object(kjit.raw.Path, "read_bytes", lambda path: self.module.artifact.cubin):
            kjit.RawModule(path="made.cubin").get_function("nothing")((1,), (1,), ())
        with self.assertRaisesRegex(ValueError, r"must end in \.cubin, \.ptx, \.fatbin"):
            kjit.RawModule(path="made.so").compile()

    def test_what_is_not_done__is_said(self):
        for options, kind, words in (
            ({"backend": "nvcc"}, ValueError, "backend is 'nvcc': kjit compiles by NVRTC alone"),
            ({"translate_cucomplex": True}, NotImplementedError, "translate_cucomplex: not done"),
            ({"options": "-lineinfo"}, TypeError, "options is '-lineinfo': must be several texts"),
        ):
            with self.assertRaisesRegex(kind, words):
                kjit.RawKernel(SOURCE, "scale", **options)
        with self.assertRaisesRegex(TypeError, "exactly one of code and path"):
            kjit.RawModule()

    def test_options__give_defines_and_folders(self):
        found = kjit.raw._split_options(("-DA", "-D", "B=2", "-I/x", "--include-path=/y", "-lineinfo"))
        self.assertEqual(found, (["-lineinfo"], {"A": None, "B": "2"}, ["/x", "/y"]))


def best_us(call, rounds=30, calls=300):
    """Microseconds of a call in the quietest round: other programs make single rounds slow, none fast."""
    least = math.inf
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, time.perf_counter() - started)
    return least / calls * 1e6


class Speed(OnFakeDriver):
    LIMIT_US = 10

    def check(self, what, call):
        found = best_us(call)
        print(f"    {what}: {found:.2f} us", flush=True)
        self.assertLess(found, self.LIMIT_US)

    def test_launch__of_five_arguments_costs_little(self):
        kernel, (a, b, c) = self.module["five"], (InterfaceArray() for _ in range(3))
        self.check("launch, three arrays and two numbers", lambda: kernel[(64, 2), 128](a, b, c, 1000, 0.5))

    def test_launch__of_three_tensors_costs_little(self):
        class Tensor:
            __slots__ = ()

            def data_ptr(self):
                return 0x9000

            def get_device(self):
                return 0

        module = types.SimpleNamespace(Tensor=Tensor, _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda d: 0))
        with mock.patch.dict(sys.modules, torch=module), mock.patch.object(_cuda, "current_ordinal", lambda: 0):
            kernel, (a, b, c) = self.module["five"], (Tensor() for _ in range(3))
            self.check("launch, three tensors and two numbers", lambda: kernel[(64, 2), 128](a, b, c, 1000, 0.5))

    def test_memory_hit__costs_little(self):
        program = kjit.Program(SOURCE, arch="sm_90a")
        self.check("program.get", lambda: program.get("scale", defines={"EXTRA": 1}))
        self.check("module[name]", lambda: self.module[FILL])


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
