"""The part in C beside the one in Python: the same calls, the same bytes for the driver, the same sentences."""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import harness
import kjit
from arrays import Array, InterfaceArray
from kjit import _native_part
from kjit.kernel import Shape

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
DRIVER.asked_stream.restype = ctypes.c_void_p
DRIVER.asked_args.restype = ctypes.c_void_p
DRIVER.asked_parameters.argtypes = [ctypes.c_size_t, ctypes.c_size_t]

SOURCE = """
extern "C" __global__ void five(float *a, float *b, float *c, int n, float s) { a[n] = b[n] + c[n] * s; }
extern "C" __global__ void numbers(signed char c, short s, int i, long long l, double d) {}
"""


class WithNative(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if _native_part.native is None:
            raise unittest.SkipTest(f"the part in C is missing: {_native_part.MISSING}")
        if kjit.doctor()["nvrtc_status"] != 0:
            raise unittest.SkipTest("NVRTC is not installed")
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        cls.module = kjit.Module(SOURCE)


class Both(WithNative):
    def outcome(self, run, count):
        """What a launch gave: the driver's arguments and stream, or the error."""
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        DRIVER.asked_parameters(count, 1)
        before = DRIVER.asked_launches()
        try:
            run()
        except Exception as fault:
            return type(fault), str(fault), DRIVER.asked_launches() - before
        finally:
            DRIVER.asked_parameters(0, 8)
        return ctypes.string_at(DRIVER.asked_args(), count), DRIVER.asked_stream(), DRIVER.asked_launches() - before

    def both(self, name, *args, stream=None):
        kernel = self.module[name]
        count = len(kernel.parameters)
        in_c = self.outcome(lambda: kernel[1, 1, 0, stream](*args), count)
        in_python = self.outcome(lambda: kernel._enqueue(Shape(1, 1), stream, args), count)
        self.assertEqual(in_c, in_python)
        return in_c

    def test_numbers__at_and_beyond_their_ranges_are_the_same(self):
        edges = [0, 1, -1, True, False, 2.5, float("inf"), float("nan"), 1e39, -1e300]
        for bits in (8, 16, 32, 64):
            edges += [(1 << bits) - 1, 1 << bits, -(1 << (bits - 1)), -(1 << (bits - 1)) - 1, 1 << (bits - 1)]
        for edge in edges:
            for place in range(5):
                values = [0, 0, 0, 0, 0.0]
                values[place] = edge
                with self.subTest(place=place, value=edge):
                    self.both("numbers", *values)
            self.both("five", None, None, None, 0, edge if isinstance(edge, float) else 0.0)

    def test_values__of_every_kind_are_the_same(self):
        x, y = InterfaceArray(), InterfaceArray(stream=0x55)
        kinds = [x, y, Array(4), Array(4, host=True), None, bytes(8), bytes(4), bytearray(8), ctypes.c_uint64(7),
                 ctypes.c_float(1.5), 7, 1.5, "text", [1], object(), 1 + 2j, Array(4, device=1)]  # fmt: skip
        for value in kinds:
            for place in range(5):
                values = [x, None, None, 3, 0.5]
                values[place] = value
                with self.subTest(place=place, kind=type(value).__name__):
                    self.both("five", *values)

    def test_streams__given_or_the_arrays_own_are_the_same(self):
        class Stream:
            cuda_stream = 0x77

        for stream in (None, 0, 5, Stream(), "none"):
            self.both("five", InterfaceArray(stream=0x66), None, None, 3, 0.5, stream=stream)
        self.assertEqual(self.both("five", InterfaceArray(stream=0x66), None, None, 3, 0.5)[1], 0x66)

    def test_count__that_is_wrong_is_the_same(self):
        for args in ((), (1,), (None,) * 6):
            self.both("five", *args)

    def test_failure_of_the_driver__is_the_same(self):
        self.addCleanup(DRIVER.asked_to_fail, 0)
        DRIVER.asked_to_fail(1)
        self.assertIs(self.both("five", None, None, None, 0, 0.5)[0], kjit.DriverError)

    def test_released_kernel__is_refused(self):
        with kjit.Runtime() as runtime:
            kernel = kjit.Module(SOURCE, runtime=runtime)["five"]
            launcher = kernel[1, 1]
        with self.assertRaises(kjit.InvalidArgument):
            launcher(None, None, None, 0, 0.5)

    def test_keywords__are_refused(self):
        with self.assertRaises(TypeError):
            self.module["five"][1, 1](None, None, None, 0, s=0.5)

    def test_launch__leaves_no_reference_behind(self):
        x = InterfaceArray()
        launcher = self.module["five"][1, 1]
        launcher(x, x, x, 1, 0.5)
        before = sys.getrefcount(x), sys.getrefcount(InterfaceArray), sys.getrefcount(None)
        for _ in range(1000):
            launcher(x, x, x, 1, 0.5)
        after = sys.getrefcount(x), sys.getrefcount(InterfaceArray), sys.getrefcount(None)
        self.assertEqual(before[:2], after[:2])
        self.assertLess(abs(after[2] - before[2]), 100)

    def test_launch__in_c_is_faster(self):
        """By a wide margin, so that a busy machine does not matter."""
        kernel = self.module["five"]
        shape, launcher = Shape(1, 1), kernel[1, 1]

        def least(run):
            times = []
            for _ in range(20):
                start = time.perf_counter_ns()
                for _ in range(100):
                    run()
                times.append(time.perf_counter_ns() - start)
            return min(times)

        in_python = least(lambda: kernel._enqueue(shape, None, (1 << 30, 1 << 30, 1 << 30, 7, 0.5)))
        in_c = least(lambda: launcher(1 << 30, 1 << 30, 1 << 30, 7, 0.5))
        self.assertLess(in_c * 2, in_python)


class Hits(WithNative):
    def test_hit__is_the_same_artifact_and_asks_the_library(self):
        arch = "sm_90"
        kjit.compile_source(SOURCE, "five", arch)
        before = kjit.stats()["memory_hits"]
        first, second = (kjit.compile_source(SOURCE, "five", arch) for _ in range(2))
        self.assertEqual((first.origin, first), ("memory", second))
        self.assertEqual(kjit.stats()["memory_hits"] - before, 2)

    def test_hit__sees_a_changed_header(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        folder = Path(made.name)
        header = folder / "value.h"
        text = '#include "value.h"\nextern "C" __global__ void k(int *x) { *x = VALUE; }'
        keys = set()
        for value in (1, 22, 333):
            header.write_text(f"#define VALUE {value}\n")
            for _ in range(3):
                keys.add(kjit.compile_source(text, "k", "sm_90", include_dirs=[folder]).key)
        self.assertEqual(len(keys), 3)

    def test_defines__that_are_equal_but_print_otherwise_are_other_requests(self):
        text = 'extern "C" __global__ void k(double *x) { *x = VALUE; }'
        keys = {kjit.compile_source(text, "k", "sm_90", defines={"VALUE": value}).key for value in (1, 1.5, "1+1")}
        self.assertEqual(len(keys), 3)
        texts = [kjit._request.request_for("", defines={"V": value}).defines[0].value for value in (1, True, 1.0)]
        self.assertEqual(texts, [b"1", b"1", b"1.0"])

    def test_one_text__in_place_of_several_is_refused(self):
        with self.assertRaisesRegex(TypeError, "options is '-w': must be several texts"):
            kjit.compile_source(SOURCE, "five", "sm_90", options="-w")


class Missing(unittest.TestCase):
    def test_package__without_the_part_in_c_says_so_and_works(self):
        code = "import kjit; print(kjit._native_part.MISSING); kjit.default_runtime()"
        environment = {**os.environ, "KJIT_NATIVE": "0"}
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        self.assertEqual((ran.returncode, ran.stdout.strip()), (0, "$KJIT_NATIVE is 0"), ran.stderr)
        ran = subprocess.run([sys.executable, "-m", "kjit", "doctor"], capture_output=True, text=True, env=environment)
        self.assertRegex(ran.stdout, r"launches +in Python: \$KJIT_NATIVE is 0")

    def test_worker__lies_beside_the_library(self):
        worker = Path(kjit._library.lib._name).with_name("kjit-compile-worker")
        if not worker.exists():
            self.skipTest(f"{worker} is not there: another library is used")
        self.assertNotEqual(subprocess.run([worker], capture_output=True).returncode, 127)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
