"""A user's kernel family from Python: configs, sets, and launches to a driver that only counts. No GPU."""

import ctypes
import math
import os
import pickle
import struct
import sys
import time
import unittest

import harness
import kjit
from arrays import InterfaceArray

ROOT = harness.Path(__file__).resolve().parents[2]
SOFTMAX = ROOT / "examples" / "family_softmax" / "softmax.yaml"

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
DRIVER.asked_stream.restype = ctypes.c_void_p
DRIVER.asked_args.restype = ctypes.c_void_p
DRIVER.asked_parameters.argtypes = [ctypes.c_size_t, ctypes.c_size_t]

TEXT = """
family: every
source: every.cu
entry: every
fields:
  dtype: {kind: dtype, values: [fp16, bf16, fp32], default: fp32}
  mode: {kind: enum, values: [plain, twice], default: plain, doc: how often}
  size: {kind: int, values: [1, 2, 4]}
block: [32, size]
grid: ["divup(count, size)", "mode == twice ? 2 : 1"]
parameters:
  x: dtype*
  count: int16
  flag: bool
  half: bf16
  f: float
  raw: struct(12)
"""
KERNEL = """
struct Raw { int v[3]; };
extern "C" __global__ void every(void *x, short count, bool flag, unsigned short half, float f, Raw raw) {
  static_cast<float *>(x)[0] = count + KJIT_size + KJIT_mode + KJIT_dtype + f + raw.v[0] + half + flag;
}
"""


class Configs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.family = kjit.Family(SOFTMAX)

    def test_fields__are_the_files(self):
        self.assertEqual(self.family.name, "softmax")
        names = [field.name for field in self.family.fields]
        self.assertEqual(names, ["dtype", "threads", "rows", "vec", "cached", "max_columns"])
        self.assertEqual(self.family.fields[1].text, "threads that share a row")
        self.assertEqual([each.type for each in self.family.parameters], ["dtype*", "const dtype*", "int32", "int32"])
        self.assertEqual(self.family.warnings, [])

    def test_config__has_typed_values_and_defaults(self):
        config = self.family.Config(threads=256, cached=True, dtype="bf16")
        self.assertEqual((config.threads, config.cached, config.dtype, config.rows), (256, True, "bf16", 1))
        self.assertIs(type(config.cached), bool)
        self.assertEqual(list(config.as_dict()), [field.name for field in self.family.fields])

    def test_config__is_printed_and_parsed(self):
        config = self.family.Config(threads=256, vec=8)
        self.assertEqual(self.family.Config.parse(str(config)), config)
        self.assertEqual(self.family.Config.parse("threads=256, vec=8"), config)
        self.assertIn('"threads"', config.to_json())

    def test_config__is_frozen_ordered_hashable_and_pickled(self):
        one, other = self.family.Config(threads=64), self.family.Config(threads=128)
        self.assertEqual((one < other, one >= other, one == self.family.Config(threads=64)), (True, False, True))
        self.assertEqual(len({one, other, self.family.Config(threads=64)}), 2)
        self.assertEqual(pickle.loads(pickle.dumps(one)), one)
        self.assertEqual(one.replace(threads=128), other)
        with self.assertRaisesRegex(AttributeError, "threads: a config cannot be changed"):
            one.threads = 32
        with self.assertRaisesRegex(AttributeError, "softmax has no field thread"):
            print(one.thread)

    def test_config__of_a_misspelt_field_is_an_error(self):
        with self.assertRaisesRegex(kjit.ParseError, "thread"):
            self.family.Config(thread=64)
        with self.assertRaisesRegex(ValueError, "dtype is 'a,b': must be one value"):
            self.family.Config(dtype="a,b")

    def test_check__says_the_rule(self):
        with self.assertRaisesRegex(kjit.InvalidConfig, "a block has at most 1024 threads"):
            self.family.Config(threads=1024, rows=8).check()
        with self.assertRaisesRegex(kjit.Unsupported, "less shared memory"):
            self.family.Config(cached=True, rows=4, max_columns=12288).check("sm_80")

    def test_canonical__joins_configs_of_equal_code(self):
        one, other = self.family.Config(max_columns=8192), self.family.Config()
        self.assertNotEqual(one, other)
        self.assertEqual(one.canonical(), other.canonical())

    def test_geometry__is_the_files(self):
        self.assertEqual(self.family.Config(threads=64, rows=2).geometry(), ((64, 2, 1), 0, (0, 0, 0)))

    def test_set__has_its_configs(self):
        small = self.family.set("small")
        self.assertEqual([config.threads for config in small], [32, 128])
        self.assertGreater(len(self.family.set("candidates")), 100)
        with self.assertRaisesRegex(kjit.NotFound, "small"):
            self.family.set("large")

    def test_source__begins_with_the_constants(self):
        self.assertIn("#define KJIT_threads 64\n", self.family.Config(threads=64).source())

    def test_signature__names_the_fields(self):
        annotations = self.family.Config.__annotations__
        self.assertEqual((annotations["dtype"], annotations["threads"], annotations["cached"]), (str, int, bool))

    def test_file__with_a_mistake_is_a_sentence_with_its_place(self):
        with self.assertRaisesRegex(kjit.ParseError, r"wrong\.yaml:\d+:\d+: "):
            kjit.Family.parse(TEXT.replace("divup(count", "divup(counts"), name="wrong.yaml", folder="/tmp")
        with self.assertRaises(kjit.NotFound):
            kjit.Family("/nowhere/at/all.yaml")

    def test_families__of_kjits_own_are_found(self):
        family = kjit.Family.find("attention_sm90")
        self.assertIn("head_dim", [field.name for field in family.fields])
        with self.assertRaisesRegex(LookupError, "'gemm': kjit has no family"):
            kjit.Family.find("gemm")


class Launches(harness.TemporaryFolder):
    def setUp(self):
        super().setUp()
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        DRIVER.asked_parameters(0, 8)
        self.write("every.cu", KERNEL)
        self.write("every.yaml", TEXT)
        self.family = kjit.Family(self.folder / "every.yaml")
        self.config = self.family.Config(size=4, mode="twice", dtype="fp16")
        self.x = InterfaceArray(dtype="float16", bytes_each=2)
        self.before = DRIVER.asked_launches()

    def launched(self):
        return DRIVER.asked_launches() - self.before

    def test_get__again_is_the_same_kernel(self):
        kernel = self.family.get(self.config)
        self.assertIs(self.family.get(self.config), kernel)
        self.assertIs(self.family.get(str(self.config)), kernel)
        self.assertEqual(kernel.artifact.arch, "sm_90a")

    def test_compile__needs_no_kernel_in_the_driver(self):
        self.assertEqual(self.family.compile(self.config, "sm_80").cubin[:4], b"\x7fELF")

    def test_launch__has_the_grid_of_the_file(self):
        kernel = self.family.get(self.config)
        DRIVER.asked_parameters(6, 12)
        kernel.launch(0x5500, self.x, 10, True, 1.5, 2, b"abcdefghijkl")
        DRIVER.asked_parameters(0, 8)
        shape = (ctypes.c_uint * 10)()
        DRIVER.asked_shape(shape)
        self.assertEqual((tuple(shape[:6]), DRIVER.asked_stream()), ((3, 2, 1, 32, 4, 1), 0x5500))
        found = ctypes.string_at(DRIVER.asked_args(), 72)
        values = [found[12 * index : 12 * index + size] for index, size in enumerate((8, 2, 1, 2, 4, 12))]
        expected = (struct.pack("<Q", self.x.data), b"\n\0", b"\1", b"\xc0\x3f", struct.pack("<f", 2), b"abcdefghijkl")
        self.assertEqual(tuple(values), expected)

    def test_arguments__are_checked_against_the_declared_parameters(self):
        kernel = self.family.get(self.config)
        good = [self.x, 1, True, 1.0, 1.0, bytes(12)]
        wrong = (
            (0, InterfaceArray(), TypeError, r"args\[0\] \(x\): an array of fp32: must be of fp16, for dtype\*"),
            (0, 5, TypeError, r"args\[0\] \(x\): int: must be an array"),
            (1, 1 << 15, OverflowError, r"args\[1\] \(count\): 32768: must be -32768 to 32767"),
            (1, 1.5, TypeError, r"args\[1\] \(count\): float: must be a whole number, for int16"),
            (2, 2, ValueError, r"args\[2\] \(flag\): 2: must be True or False"),
            (4, "1", TypeError, r"args\[4\] \(f\): str: must be a number, for float"),
            (5, bytes(11), TypeError, r"args\[5\]: bytes of 11 bytes: must be 12 bytes"),
        )  # fmt: skip
        for index, value, kind, words in wrong:
            with self.assertRaisesRegex(kind, words):
                kernel(*good[:index], value, *good[index + 1 :])
        with self.assertRaisesRegex(TypeError, "every takes 6 arguments, x, count, flag, half, f, raw: 5 were given"):
            kernel(*good[:5])
        with self.assertRaisesRegex(kjit.InvalidConfig, "grid"):
            kernel(self.x, 0, True, 1.0, 1.0, bytes(12))
        self.assertEqual(self.launched(), 0)

    def test_file__whose_parameters_are_not_the_kernels_is_refused(self):
        self.write("every.yaml", TEXT.replace("count: int16", "count: int32"))
        with self.assertRaisesRegex(TypeError, r"declares parameters of \[8, 4, 1, 2, 4, 12\] bytes, and kernel"):
            kjit.Family(self.folder / "every.yaml").get("size=1")


class Speed(unittest.TestCase):
    def test_launch__costs_microseconds(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        DRIVER.asked_parameters(0, 8)
        kernel = kjit.Family(SOFTMAX).get("threads=64")
        out, x = (InterfaceArray(dtype="float16", bytes_each=2) for _ in range(2))
        best = math.inf
        for _ in range(30):
            started = time.perf_counter()
            for _ in range(300):
                kernel.launch(None, out, x, 1000, 4096)
            best = min(best, time.perf_counter() - started)
        print(f"    launch of four arguments: {best / 300 * 1e6:.2f} us", flush=True)
        self.assertLess(best / 300, 3e-5)  # some 8 us where nothing else runs


class Tuning(unittest.TestCase):
    """Choosing and tuning for an architecture without a card, by times of a formula."""

    PROBLEM = {"dtype": "fp16", "columns": 4096, "row_count": 1000}

    def setUp(self):
        self.family = kjit.Family(SOFTMAX)
        self.folder = harness.tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def runtime(self):
        made = kjit.Runtime(cache_dir=self.folder.name)
        self.addCleanup(made.close)
        return made

    def tune(self, time, **options):
        options = {"set": "candidates", "arch": "sm_90", "most": 6, "runs": 2, "runtime": self.runtime(), **options}
        return self.family.tune(self.PROBLEM, time, **options)

    def chosen(self):
        return self.family.choose(self.PROBLEM, "sm_90", runtime=self.runtime())

    def test_tune__fastest_is_chosen_from_the_table(self):
        cubins = {}

        def time(config, cubin):
            cubins[config] = cubin
            return 10 * config.rows + config.vec

        self.assertEqual(self.chosen().decided_by, "rules")
        found = self.tune(time, most=20)
        self.assertEqual((found.decided_by, found.config.rows, found.config.vec), ("rules", 1, 4))
        found = self.tune(lambda config, cubin: 100 - config.rows - config.vec, most=20)
        self.assertEqual((found.decided_by, found.failed), ("table", 0))
        self.assertLess(found.microseconds, found.rules_microseconds)
        self.assertEqual(self.chosen(), kjit.Choice(found.config, "table"))
        self.assertTrue(all(cubin.startswith(b"\x7fELF") for cubin in cubins.values()))

    def test_tune__exception_drops_one_candidate(self):
        def time(config, cubin):
            if config.rows == 4:
                raise RuntimeError("no launch")
            return 1.0

        found = self.tune(time)
        self.assertGreater(found.failed, 0)
        self.assertIn("RuntimeError: no launch", found.first_failure)

    def test_tune__wrong_results_do_not_win(self):
        rules = self.chosen().config
        found = self.tune(lambda config, cubin: float(config != rules) + 1, check=lambda config, cubin: config == rules)
        self.assertEqual(found.decided_by, "rules")
        found = self.tune(lambda config, cubin: 2 - float(config != rules), check=lambda config, cubin: config == rules)
        self.assertEqual(found.decided_by, "rules")

    def test_tune__exit_ends_it_and_keeps_nothing(self):
        with self.assertRaises(SystemExit):
            self.tune(lambda config, cubin: sys.exit(3))
        self.assertEqual(self.chosen().decided_by, "rules")

    def test_tune__may_keep_nothing(self):
        self.tune(lambda config, cubin: 100 - config.rows, publish=False)
        self.assertEqual(self.chosen().decided_by, "rules")

    def test_choose__bad_problem_is_named(self):
        with self.assertRaisesRegex(kjit.ParseError, 'did you mean "columns"'):
            self.family.choose("colums=3", "sm_90")
        with self.assertRaisesRegex(kjit.ParseError, "row_count is missing"):
            self.family.choose({"columns": 3}, "sm_90")

    def test_tune_attention__of_whichever_family_the_planner_takes(self):
        problem = {"head_dim": 64, "seq_q": 1, "seq_kv": 8192, "heads_q": 16}
        found = kjit.tune_attention(
            lambda config, cubin: 1.0, most=1, runs=1, publish=False, runtime=self.runtime(), **problem
        )
        self.assertEqual(found.config.family.name, "attention_decode_sm90")
        self.assertEqual((found.failed, found.first_failure), (0, ""))
        with self.assertRaisesRegex(ValueError, "dtype is 'fp64': must be one of"):
            kjit.tune_attention(lambda config, cubin: 1.0, dtype="fp64", seq_q=1, head_dim=64)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
