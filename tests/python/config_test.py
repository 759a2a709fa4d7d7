"""Configs, their text and sets: what Python shows is what the library says."""

import ctypes
import dataclasses
import json
import os
import pickle
import random
import sys
import unittest

import harness
import kjit
from kjit._library import lib

TEXT = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax"


def config(**changes):
    return dataclasses.replace(kjit.FlashForwardKernelConfig.parse(TEXT), **changes)


class Config(unittest.TestCase):
    def test_fields__are_the_librarys_in_order(self):
        names = []
        family = lib.kjit_family_find(b"flash_forward")
        while len(names) < len(kjit.FIELDS) and (row := lib.kjit_family_field(family, len(names))):
            names.append(row.contents.name.decode())
        self.assertEqual([field.name for field in dataclasses.fields(kjit.FlashForwardKernelConfig)], names)
        self.assertEqual(len(names), 13)

    def test_fields__have_no_defaults(self):
        with self.assertRaises(TypeError):
            kjit.FlashForwardKernelConfig(5, 128)

    def test_parse__gives_typed_values(self):
        read = kjit.FlashForwardKernelConfig.parse(TEXT)
        self.assertIs(read.dtype, kjit.DType.FP16)
        self.assertIs(read.swizzled, True)
        self.assertEqual((read.d_head, read.B_r, read.Q_mma_load_K_tiles), (128, 64, 0))

    def test_parse__of_every_spelling_is_one_config(self):
        plain = "FlashForwardKernelConfig{5, 128, 64, 64, 4, true, true, true, 0, 2, 2, false, true}"
        casts = (
            "FlashForwardKernelConfig{(c10::ScalarType)5, (int)128, (int)64, (int)64, (int)4, (bool)1, (bool)1, "
            "(bool)1, (int)0, (int)2, (int)2, (bool)0, (bool)1}"
        )
        for text in (plain, casts):
            self.assertEqual(kjit.FlashForwardKernelConfig.parse(text), config())

    def test_text__of_every_prebuilt_config_parses_back(self):
        for each in kjit.config_set("prebuilt"):
            self.assertEqual(kjit.FlashForwardKernelConfig.parse(str(each)), each)

    def test_text__can_leave_parts_out(self):
        self.assertEqual(config().short_form(d_head=False), TEXT.replace("128, ", "", 1))
        self.assertEqual(config().short_form(whole_tuple=False), TEXT.partition(": ")[2])

    def test_json__has_the_fields_in_order(self):
        self.assertEqual(list(json.loads(config().to_json())), [field.name for field in kjit.FIELDS])

    def test_parse__of_an_unknown_feature_names_it(self):
        with self.assertRaisesRegex(kjit.ParseError, 'column 25: .*found "asynch"'):
            kjit.FlashForwardKernelConfig.parse("(FP16, 128, 64, 64, 4): asynch")

    def test_config__is_frozen(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            config().B_r = 128

    def test_order__is_the_librarys(self):
        configs = kjit.config_set("prebuilt")
        pick = random.Random(1)
        for a, b in ((pick.choice(configs), pick.choice(configs)) for _ in range(500)):
            order = lib.kjit_config_compare(ctypes.byref(a._kernel), ctypes.byref(b._kernel))
            self.assertEqual((a > b) - (a < b), order)
            self.assertEqual(a == b, order == 0)

    def test_hash__of_equal_configs_is_equal(self):
        self.assertEqual(len({config(), config(), config(B_r=128)}), 2)

    def test_pickle__gives_an_equal_config(self):
        self.assertEqual(pickle.loads(pickle.dumps(config())), config())

    def test_values__are_read_as_their_kind(self):
        self.assertIs(config(dtype="bf16").dtype, kjit.DType.BF16)
        self.assertIs(config(swizzled=1).swizzled, True)

    def test_values__that_do_not_fit_are_named(self):
        with self.assertRaisesRegex(ValueError, "B_r is 4294967296"):
            config(B_r=2**32)

    def test_check__says_the_rule(self):
        with self.assertRaisesRegex(kjit.InvalidConfig, "B_r is 96"):
            config(B_r=96).check()

    def test_check__knows_architectures(self):
        with self.assertRaises(kjit.Unsupported):
            config().check("sm_70")
        config().check("sm_90")

    def test_canonical__merges_equal_code(self):
        plain = config(K_mma_load_K_tiles=0, V_mma_load_K_tiles=0)
        buffered = dataclasses.replace(plain, mma_double_buffer_loads=True)  # with nothing to buffer
        self.assertNotEqual(buffered, plain)
        self.assertEqual(buffered.canonical(), plain.canonical())
        self.assertEqual(plain.canonical().canonical(), plain.canonical())

    def test_geometry__follows_the_formulas(self):
        self.assertEqual(config().geometry(), kjit.flash_config.Geometry(128, (64 + 2 * 64) * 128 * 2, 16))

    def test_ctas_per_sm__is_limited_by_registers(self):
        self.assertGreater(config().ctas_per_sm(64, "sm_80"), config().ctas_per_sm(255, "sm_80"))

    def test_choose__fits_the_problem(self):
        chosen = kjit.FlashForwardKernelConfig.choose("bf16", 4096, 4096, 128, "sm_90")
        self.assertEqual((chosen.dtype, chosen.d_head), (kjit.DType.BF16, 128))
        chosen.check("sm_90")


class DTypes(unittest.TestCase):
    def test_numbers__are_pytorchs(self):
        self.assertEqual((kjit.DType.FP16, kjit.DType.BF16), (5, 15))

    def test_from_string__takes_number_and_name(self):
        for text in ("5", " fp16 ", "FP16"):
            self.assertIs(kjit.DType.from_string(text), kjit.DType.FP16)

    def test_from_string__names_the_options(self):
        with self.assertRaisesRegex(ValueError, r"'int8'.*FP16 \(5\).*BF16 \(15\)"):
            kjit.DType.from_string("int8")


class Sets(unittest.TestCase):
    def setUp(self):
        self.before = os.environ.pop("KERNELS", None)

    def tearDown(self):
        os.environ.pop("KERNELS", None)
        if self.before is not None:
            os.environ["KERNELS"] = self.before

    def test_sets__have_their_sizes(self):
        sizes = {
            name: len(kjit.config_set(name)) for name in ("progression", "autotune", "prebuilt", "progression_all")
        }
        self.assertEqual(sizes, {"progression": 7, "autotune": 80, "prebuilt": 85, "progression_all": 56})

    def test_sets__are_sorted_and_distinct(self):
        for name in ("autotune", "prebuilt"):
            configs = kjit.config_set(name)
            self.assertEqual(configs, sorted(set(configs)))

    def test_prebuilt__is_autotune_and_the_progression(self):
        union = {*kjit.config_set("autotune"), *kjit.config_set("progression")}
        self.assertEqual(set(kjit.config_set("prebuilt")), union)

    def test_set__that_is_none_names_those_that_are(self):
        with self.assertRaisesRegex(kjit.NotFound, "progression, autotune, prebuilt"):
            kjit.config_set("everything")

    def test_kernels__selects_by_key(self):
        for key, size in (
            ("prog", 7),
            ("progression-all", 56),
            ("all", 80),
            ("tune", 80),
            ("128,64", 16),
            ("64, 64", 32),
        ):
            self.assertEqual(len(kjit.get_kernel_configs(key)), size, key)

    def test_kernels__is_read_from_the_environment(self):
        os.environ["KERNELS"] = "64,32"
        configs = kjit.get_kernel_configs()
        self.assertEqual({(each.B_r, each.B_c) for each in configs}, {(64, 32)})

    def test_kernels__anything_else_is_an_error(self):
        for key in (None, "", "none", "64", "64,32,4"):
            with self.assertRaisesRegex(ValueError, "KERNELS is"):
                kjit.get_kernel_configs(key)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
