"""What Python gives the library that it cannot take: an error that names the argument, and never a crash, a value that
was cut without a word, or an error from the inside of the package. No GPU."""

import inspect
import os
import re
import sys
import types
import unittest

import harness

# Without a card, on every machine: on one with a card some of these calls would be good ones, and compile for minutes.
os.environ.update(KJIT_LIBCUDA="/nowhere/libcuda.so", KJIT_CACHE_MODE="off")
import kjit  # noqa: E402
from kjit import flash_attn_interface  # noqa: E402

TEXT = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
KERNEL = 'extern "C" __global__ void k() {}'

#: Errors that tell a caller what is wrong with what was given.
TOLD = (TypeError, ValueError, LookupError, OverflowError, NotImplementedError, ImportError, OSError, kjit.Error)

JUNK = (
    None, 0, -1, 2**31, 2**63, 2**64 + 1, 1.5, float("nan"), "", "x", "a\0b", "\ud800", b"x", b"a\0b", True, [], (),
    {}, [None], ["a\0b"], {"a": None}, {1: 2}, object(),
)  # fmt: skip

#: These are made by others of the package, or change the process: enable() and its like have tests of their own.
LEFT_OUT = {"FamilyConfig", "FamilyKernel", "Kernel", "enable", "disable", "install_as_flash_attn", "enabled_counts"}


class Sweep(unittest.TestCase):
    def test_public_calls__of_anything_end_in_an_error_that_tells(self):
        calls = 0
        for name in sorted(set(kjit.__all__) - LEFT_OUT):
            function = getattr(kjit, name)
            if not callable(function) or (inspect.isclass(function) and issubclass(function, BaseException)):
                continue
            for value in JUNK:
                for arguments, members in self.ways(function, value):
                    calls += 1
                    with self.subTest(name=name, arguments=arguments, members=members):
                        try:
                            function(*arguments, **members)
                        except TOLD as error:
                            self.assertFalse(isinstance(error, KeyError) and not isinstance(error, kjit.Error), error)
        self.assertGreater(calls, 1000)

    @staticmethod
    def ways(function, value):
        """Calls with the value in every required argument, and with it in each of the others."""
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # a type of C, or an enum
            return [((value,), {})]
        required = [each for each in parameters if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
        first = tuple(value for _ in required)
        named = [each.name for each in parameters if each.default is not each.empty]
        return [(first, {})] + [(first, {name: value}) for name in named]


class Cut(harness.TemporaryFolder):
    """ctypes passes a text up to its first NUL, and the low bits of a number."""

    def setUp(self):
        super().setUp()
        self.runtime = kjit.Runtime(cache_dir=str(self.folder / "cache"), ignore_environment=True)
        self.addCleanup(self.runtime.close)

    def refused(self, kind, words, call, *arguments, **members):
        with self.subTest(words=words), self.assertRaisesRegex(kind, words):
            call(*arguments, **members)

    def test_texts__with_a_nul_are_refused_by_name(self):
        rows = (
            ("arch is 'sm_80.x00j': must not contain a NUL", self.runtime.describe_attention, "bf16", 64, "sm_80\0j"),
            ("entry is 'k.x00z'", self.runtime.compile_source, KERNEL, "k\0z", "sm_80"),
            ("prefix is ", self.runtime.cache_show, "abcd\0"),
            ("name is ", kjit.config_set, "prebuilt\0"),
            ("text is ", kjit.FlashForwardKernelConfig.parse, TEXT + "\0"),
            ("text is ", kjit.Family.find("attention_sm90").Config.parse, "dtype=bf16\0"),
            ("name is ", kjit.Family.find, "attention_sm90\0"),
            ("mask is ", kjit.Variant, None, "q >= k\0"),
            ("cache_dir is ", lambda path: kjit.Runtime(cache_dir=path), "/tmp/a\0b"),
            ("path is ", self.runtime.cache_export, "/tmp/a\0b"),
            (r"trusted_keys\[0\] is ", lambda key: kjit.Runtime(trusted_keys=[key]), "00\0"),
        )
        for words, call, *arguments in rows:
            self.refused(ValueError, words, call, *arguments)
        words = r"text has '.udc80' at character 3: must be UTF-8"  # what a file of another encoding may be read as
        self.refused(ValueError, words, self.runtime.compile_source, "// \udc80", "k", "sm_80")
        macros = {"defines": {"A": "1\0 2"}}
        self.refused(ValueError, r"defines\['A'\] is ", self.runtime.compile_source, KERNEL, "k", "sm_80", **macros)

    def test_numbers__that_do_not_fit_are_refused_by_name(self):
        card = {"card": "H200"}
        rows = (
            ("batch is 18446744073709551617: must be -9", {"batch": 2**64 + 1, **card}),
            ("seq_kv is 9223372036854775808: must be -9", {"seq_kv": 2**63, **card}),
        )
        for words, members in rows:
            self.refused(OverflowError, words, self.runtime.describe_attention, "bf16", 64, **members)
        for name in ("cache_max_bytes", "cache_max_entries", "memory_max_entries", "modules_max_idle"):
            self.refused(OverflowError, f"{name} is -1: must be 0 to ", kjit.Runtime, **{name: -1})
        for value in (-1, 2**32):
            words = f"timeout_ms is {value}: must be 0 to 4294967295"
            self.refused(OverflowError, words, self.runtime.compile_source, KERNEL, "k", "sm_80", timeout_ms=value)
            self.refused(OverflowError, words, self.runtime.wait_compiles, value)
        self.refused(OverflowError, "max_bytes is -1", self.runtime.cache_prune, -1)
        config = kjit.FlashForwardKernelConfig.parse(TEXT)
        self.refused(OverflowError, "registers is ", config.ctas_per_sm, 2**32 + 64, "sm_80")

    def test_other_types__are_refused_by_name(self):
        rows = (
            ("arch is b'sm_80': must be a str", self.runtime.describe_attention, "bf16", 64, b"sm_80"),
            ("config is None: must be a FlashForward", self.runtime.compile, None, "sm_80"),
            ("cache_dir is 5: must be a str, bytes or a path", lambda path: kjit.Runtime(cache_dir=path), 5),
            ("cache_max_bytes is None", lambda bytes: kjit.Runtime(cache_max_bytes=bytes), None),
            ("text is 3: must be a str", self.runtime.compile_source, 3, "k", "sm_80"),
            ("query is a NoneType: must be a tensor", kjit.flex_attention, None, None, None),
            ("block_mask is a int: must be a BlockMask", lambda mask: kjit.explain(block_mask=mask), 5),
        )
        for words, call, *arguments in rows:
            self.refused(TypeError, words, call, *arguments)
        words = r"defines\['N'\] is a object: must be a number, a bool or a text"
        self.refused(TypeError, words, self.runtime.compile_source, KERNEL, "k", "sm_80", defines={"N": object()})
        words = r"defines\['N'\] is nan: must be finite"
        self.refused(ValueError, words, self.runtime.compile_source, KERNEL, "k", "sm_80", defines={"N": float("nan")})
        words = "source: is missing: a request has a source, compiled parts, or both"
        self.refused(kjit.InvalidArgument, words, self.runtime.compile_source, None, "k", "sm_80")
        words = r"give arch \('sm_80'\) or card \('H200'\)"
        self.refused(TypeError, words, self.runtime.describe_attention, "bf16", 64, "sm_80", card="H200", seq_q=64)
        words = "compile_server is 'yes': must be one of False, True"
        self.refused(ValueError, words, kjit.Runtime, compile_server="yes")


class Packed(unittest.TestCase):
    def test_shapes__that_hold_other_tensors_than_two_or_three_are_refused(self):
        """Of a tensor with three where two belong, the first two would be taken."""
        rows = (
            (kjit.flash_attn_qkvpacked_func, (), "qkv", (2, 16, 3, 4, 64), 3),
            (kjit.flash_attn_kvpacked_func, (None,), "kv", (2, 16, 2, 4, 64), 2),
            (flash_attn_interface.flash_attn_qkvpacked_func, (), "qkv", (2, 16, 3, 4, 64), 3),
            (kjit.flash_attn_varlen_qkvpacked_func, (), "qkv", (16, 3, 4, 64), 3),
            (kjit.flash_attn_varlen_kvpacked_func, (None,), "kv", (16, 2, 4, 64), 2),
        )
        for function, before, name, shape, count in rows:
            more = (None,) * (len(inspect.signature(function).parameters) - len(before) - 1)
            others = [shape[:-3] + (count + by,) + shape[-2:] for by in (-1, 1)]
            for wrong in ((), shape[1:], *others):
                words = f"must have {len(shape)} axes, and {count} along axis {len(shape) - 3}"
                with self.assertRaisesRegex(ValueError, rf"^{name} has shape \(.*\): {words}"):
                    function(*before, types.SimpleNamespace(shape=wrong), *more)
            with self.assertRaisesRegex(TypeError, f"{name} is a NoneType: must be a tensor"):
                function(*before, None, *more)

    def test_heads__along_one_axis_are_those_of_q_and_pairs_besides(self):
        function = flash_attn_interface.flash_attn_qkvpacked_func
        for shape, heads in (((2, 16, 8, 64), 7), ((2, 16, 8, 64), 8), ((2, 16, 8, 64), 0), ((16, 8, 64), 4)):
            words = re.escape(f"qkv has shape {shape} and num_heads_q is {heads}: must have 4 axes")
            with self.assertRaisesRegex(ValueError, f"^{words}, and num_heads_q \\+ 2 \\* heads_kv heads"):
                function(types.SimpleNamespace(shape=shape), num_heads_q=heads)
        with self.assertRaisesRegex(TypeError, "qkv is a list: must be a tensor"):
            function([1], num_heads_q=4)


class Closed(unittest.TestCase):
    def test_runtime__that_was_closed_says_so_in_every_call(self):
        runtime = kjit.Runtime(cache_mode="off")
        runtime.close()
        runtime.close()
        calls = (
            runtime.stats, runtime.cache_entries, runtime.cache_clear, runtime.doctor, runtime.cancel,
            runtime.device_count, lambda: runtime.describe_attention("bf16", 64, "sm_80"),
            lambda: runtime.compile(TEXT, "sm_80"), lambda: runtime.compile_source(KERNEL, "k", "sm_80"),
        )  # fmt: skip
        for call in calls:
            with self.assertRaisesRegex(kjit.InvalidArgument, "the runtime was closed"):
                call()

    def test_attribute__that_a_runtime_has_not_is_named(self):
        with kjit.Runtime(cache_mode="off") as runtime, self.assertRaisesRegex(AttributeError, "'Runtime'.*'nothing'"):
            runtime.nothing


class WithoutADriver(unittest.TestCase):
    def test_driver__that_is_missing_is_an_error_of_the_librarys_kind(self):
        with self.assertRaisesRegex(kjit.NoDriver, "the CUDA driver could not be loaded: /nowhere") as caught:
            kjit.Module(KERNEL)
        self.assertEqual(caught.exception.status_name, "KJIT_ERR_NO_DRIVER")


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
