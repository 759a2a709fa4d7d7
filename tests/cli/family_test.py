"""Families of one's own by the kjit command: show, check, sets, compile, warm, manifests, bundles.
usage: family_test.py KJIT"""

import shutil
import sys
from pathlib import Path

import harness
from harness import FAILED, USAGE

KJIT = Path(sys.argv[1]).resolve()
SOFTMAX = Path(__file__).resolve().parents[2] / "examples" / "family_softmax"
DEFAULT = "dtype=fp16,threads=128,rows=1,vec=4,cached=0,max_columns=4096"


class FamilyCase(harness.KjitCase):
    program = KJIT

    def setUp(self):
        super().setUp()
        self.kernels = self.folder / "kernels"
        self.kernels.mkdir()
        for name in ("softmax.cu", "softmax.yaml"):
            shutil.copy(SOFTMAX / name, self.kernels)
        self.softmax = str(self.kernels / "softmax.yaml")


class Show(FamilyCase):
    def test_family_show__names_fields_parameters_and_sets(self):
        shown = self.json("family", "show", self.softmax)
        self.assertEqual([field["name"] for field in shown["fields"]],
                         ["dtype", "threads", "rows", "vec", "cached", "max_columns"])
        self.assertEqual(shown["parameters"][1], {"name": "in", "type": "const dtype*"})
        self.assertEqual(shown["sets"]["small"], 2)

    def test_family_show__lists_the_legal_values_of_each_field(self):
        legal = {field["name"]: field["legal"] for field in self.json("family", "show", self.softmax)["fields"]}
        self.assertEqual(legal["vec"], "one of 1, 2, 4, 8")
        self.assertIn("max_columns      int    from 1024 to 32768 in steps of 1024; ",
                      self.kjit("family", "show", self.softmax).stdout)

    def test_family_show__takes_kjits_own_by_name(self):
        self.assertIn("head_dim", self.kjit("family", "show", "attention_sm90").stdout)

    def test_family_check__names_file_line_and_rule(self):
        text = Path(self.softmax).read_text().replace("require: vec_bytes", "require: vek_bytes")
        Path(self.softmax).write_text(text)
        said = self.kjit("family", "check", self.softmax, exit_code=USAGE).stderr
        self.assertIn("softmax.yaml:", said)
        self.assertIn('did you mean "vec_bytes"?', said)

    def test_family_check__constant_without_field_is_named(self):
        with open(self.kernels / "softmax.cu", "a") as source:
            source.write("static_assert(KJIT_thread > 0);\n")
        said = self.kjit("family", "check", self.softmax, exit_code=USAGE).stderr
        self.assertIn("the kernel uses KJIT_thread, and no field", said)

    def test_family_set__lists_configs_that_compile_reads(self):
        lines = self.kjit("family", "set", self.softmax, "small").stdout.splitlines()
        self.assertEqual(len(lines), 2)
        compiled = self.json("compile", "--family", self.softmax, lines[0], "--arch", "sm_80")
        self.assertEqual(compiled["label"], lines[0])

    def test_family__usage_errors_have_their_code(self):
        self.kjit("family", exit_code=USAGE)
        self.kjit("family", "show", exit_code=USAGE)
        self.kjit("family", "show", "a.yaml", "b", exit_code=USAGE)
        self.assertIn("is no family", self.kjit("family", "show", "softmax", exit_code=FAILED).stderr)


class Compile(FamilyCase):
    def test_compile_family__without_a_config_every_field_has_its_default(self):
        compiled = self.json("compile", "--family", self.softmax, "--arch", "sm_90")
        self.assertEqual((compiled["family"], compiled["label"], compiled["threads"]), ("softmax", DEFAULT, 128))

    def test_compile_family__field_and_rule_are_named(self):
        said = self.kjit("compile", "--family", self.softmax, "threds=64", "--arch", "sm_80", exit_code=USAGE).stderr
        self.assertIn('"threds" is no field of softmax; did you mean "threads"?', said)
        said = self.kjit("compile", "--family", self.softmax, "threads=1024,rows=2", "--arch", "sm_80",
                         exit_code=FAILED).stderr
        self.assertIn("a block has at most 1024 threads", said)

    def test_compile_family__equal_code_has_one_key(self):
        keys = {self.json("compile", "--family", self.softmax, f"max_columns={n}", "--arch", "sm_80")["key"]
                for n in (1024, 2048)}
        self.assertEqual(len(keys), 1)

    def test_cache_why__speaks_of_the_fields(self):
        self.json("compile", "--family", self.softmax, "vec=4", "--arch", "sm_80")
        key = self.json("compile", "--family", self.softmax, "vec=8", "--arch", "sm_80")["key"]
        self.assertIn("#define KJIT_vec 8", self.kjit("cache", "why", key).stdout)
        self.assertIn("vec=8", self.kjit("cache", "list").stdout)


class Warm(FamilyCase):
    def test_warm_family__builds_a_set_once(self):
        arguments = ("warm", "--family", self.softmax, "--set", "small", "--arch", "sm_80,sm_90")
        self.assertEqual(self.json(*arguments)["built"], 4)
        self.assertEqual(self.json(*arguments)["cached"], 4)

    def test_warm_manifest__family_file_is_relative_to_the_manifest(self):
        manifest = self.write("kernels/asked.manifest", "softmax.yaml sm_80,sm_90 threads=64\n"
                                                        "softmax.yaml sm_80 threads=64,max_columns=1024\n")
        report = self.json("warm", "--manifest", manifest)
        self.assertEqual((report["requested"], report["distinct"], report["built"]), (3, 2, 2))

    def test_warm_manifest__what_is_wrong_is_named_with_its_line(self):
        manifest = self.write("kernels/asked.manifest", "# two\nsoftmax.yaml sm_80 thread=64\n")
        said = self.kjit("warm", "--manifest", manifest, exit_code=USAGE).stderr
        self.assertIn("asked.manifest:2: ", said)
        self.assertIn('did you mean "threads"?', said)
        manifest = self.write("kernels/asked.manifest", "gone.yaml sm_80 threads=64\n")
        self.assertIn("gone.yaml", self.kjit("warm", "--manifest", manifest, exit_code=FAILED).stderr)

    def test_record_family__the_folder_can_be_warmed_elsewhere(self):
        manifest = self.kernels / "asked.manifest"
        self.json("compile", "--family", self.softmax, "vec=8", "--arch", "sm_90", KJIT_RECORD=manifest)
        self.assertEqual(manifest.read_text(), f"softmax.yaml sm_90 {DEFAULT.replace('vec=4', 'vec=8')}\n")
        elsewhere = self.folder / "elsewhere"
        shutil.copytree(self.kernels, elsewhere)
        shutil.rmtree(self.kernels)
        self.assertEqual(self.json("warm", "--manifest", elsewhere / "asked.manifest")["cached"], 1)

    def test_bundle_family__has_the_kernels_of_the_set(self):
        bundle = str(self.kernels / "softmax.bundle")
        self.kjit("bundle", "create", bundle, "--family", self.softmax, "--set", "small", "--arch", "sm_80")
        shown = self.json("bundle", "inspect", bundle)
        self.assertEqual({kernel["family"] for kernel in shown["kernels"]}, {"softmax"})
        self.assertEqual(len(shown["kernels"]), 2)


if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=KJIT)
