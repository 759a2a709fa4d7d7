"""Everything of the C API can be reached from Python, but for what has a reason not to be."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

import harness
import kjit
from kjit import _abi

#: Functions that Python does not call, and why not.
NOT_CALLED = {
    "kjit_artifact_retain": "an Artifact is a copy, which needs no reference",
    "kjit_family_retain": "a Family has the one reference",
    "kjit_kernel_retain": "a Kernel has the one reference",
    "kjit_module_retain": "a Module has the one reference",
    "kjit_attention_serving_kernels": "`kjit warm` lists a model's kernels by a manifest line",
    "kjit_attention_backward_choose": "autograd calls what the library chooses",
    "kjit_attention_backward_plan_create": "autograd prepares each call, which finds what was decided before",
    "kjit_kernel_get": "a kernel comes from its module, program or config",
    "kjit_record_sweep": "`kjit warm` and `kjit bundle create` sweep the folder that they read",
    "kjit_remote_check": "upkeep of a shared store: `kjit cache verify --remote`",
    "kjit_remote_push": "upkeep of a shared store: `kjit cache push`",
    "kjit_config_get": "FamilyConfig and FlashForwardKernelConfig read a config's values from the struct itself",
    "kjit_config_set": "a config does not change: another is made",
    "kjit_family_create": "the struct's functions are the program's own code: in Python a family is a file",
    "kjit_family_set_name": "Family.sets() gives the names with their members",
    "kjit_status_text": "an exception has the sentence of what happened, which says more",
    "kjit_worker_main": "it is the program kjit-compile-worker, which the package carries",
}
#: The parts of a contest. Python has the whole of it, Family.tune() and Family.choose(), and `kjit tune` the rest.
TUNING = re.compile(r"kjit_(tune|contest|family_problem)\w*")

SOURCE = '#include "value.h"\nextern "C" __global__ void k(float *x) { x[0] = VALUE; }'


def called():
    """The functions that the package names in its own text."""
    text = "\n".join(path.read_text() for path in Path(kjit.__file__).parent.glob("*.py") if path.name != "_abi.py")
    return set(re.findall(r"\bkjit_\w+", text)) & set(_abi.FUNCTIONS)


class Reach(unittest.TestCase):
    def test_functions__are_called_or_have_a_reason(self):
        missing = set(_abi.FUNCTIONS) - called() - set(NOT_CALLED)
        self.assertEqual({name for name in missing if not TUNING.fullmatch(name)}, set())

    def test_reasons__are_of_functions_that_are_there_and_not_called(self):
        self.assertEqual(set(NOT_CALLED) - set(_abi.FUNCTIONS), set())
        self.assertEqual(set(NOT_CALLED) & called(), set())


class WithRuntime(unittest.TestCase):
    def setUp(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.runtime = kjit.Runtime(cache_dir=self.folder / "cache")
        self.addCleanup(self.runtime.close)

    def compile(self, value, **options):
        headers = {"value.h": f"#define VALUE {value}\n"}
        return self.runtime.compile_source(SOURCE, "k", "sm_90", headers=headers, **options)


class Cache(WithRuntime):
    def test_show__is_the_entry_with_its_code(self):
        made = self.compile(1)
        found = self.runtime.cache_show(made.key[:12])
        self.assertEqual((found["key"], found["cubin"], found["origin"]), (made.key, made.cubin, "user"))
        with self.assertRaises(kjit.NotFound):
            self.runtime.cache_show("0000")

    def test_why__names_what_differs(self):
        first, second = self.compile(1), self.compile(2, options=["-lineinfo"])
        why = self.runtime.cache_why(second.key)
        self.assertEqual(why.nearest, first.key)
        fields = {row.field for row in why.differences}
        self.assertTrue(any("value.h" in field for field in fields), fields)
        self.assertTrue(any("option" in field for field in fields), fields)
        (header,) = (row for row in why.differences if "value.h" in row.field)
        lines = (header.line, header.wanted_line, header.found_line)
        self.assertEqual(lines, (1, "#define VALUE 2", "#define VALUE 1"))

    def test_verify__finds_damage_and_repairs_it(self):
        made = self.compile(1)
        self.compile(2)
        (path,) = (path for path in (self.folder / "cache").rglob(f"*{made.key[2:20]}*") if path.is_file())
        path.write_bytes(path.read_bytes()[:-10])
        self.assertEqual(self.runtime.cache_verify()["damaged"], 1)
        self.assertEqual(self.runtime.cache_verify(repair=True)["removed"], 1)
        self.assertEqual(self.runtime.cache_verify(), {**self.runtime.cache_verify(), "entries": 1, "damaged": 0})

    def test_prune__leaves_no_more_than_asked(self):
        for value in range(3):
            self.compile(value)
        report = self.runtime.cache_prune(0)
        self.assertEqual((report["removed"], self.runtime.cache_entries()), (3, []))

    def test_export__is_imported_elsewhere(self):
        key = self.compile(1).key
        self.assertEqual(self.runtime.cache_export(self.folder / "all.kjb", "arch=sm_90")["entries"], 1)
        with kjit.Runtime(cache_dir=self.folder / "other") as other:
            self.assertEqual(other.cache_import(self.folder / "all.kjb")["entries"], 1)
            self.assertEqual(other.cache_show(key)["key"], key)


class Requests(WithRuntime):
    def test_key__is_that_of_the_artifact(self):
        headers = {"value.h": "#define VALUE 1\n"}
        found = self.runtime.key_of_request(SOURCE, "k", "sm_90", headers=headers)
        self.assertEqual(self.runtime.stats()["builds"], 0)
        self.assertEqual((found.key, len(found.request)), (self.compile(1).key, 64))

    def test_source__has_the_defines_first(self):
        text = self.runtime.source_of_request(SOURCE, "k", defines={"N": 4})
        self.assertLess(text.index("#define N 4"), text.index("__global__"))


class Cancel(WithRuntime):
    def test_runtime__that_was_cancelled_finds_and_does_not_compile(self):
        made = self.compile(1)
        self.runtime.cancel()
        self.assertEqual(self.compile(1).key, made.key)
        with self.assertRaises(kjit.Error) as caught:
            self.compile(2)
        self.assertEqual(caught.exception.status_name, "KJIT_ERR_CANCELLED")
        self.runtime.wait_compiles(0)


class Recorded(WithRuntime):
    def test_request__that_was_recorded_is_built_elsewhere(self):
        manifest = self.folder / "asked.manifest"
        self.runtime.record(manifest)
        made = self.compile(1)
        self.runtime.record(None)
        (request,) = (self.folder / "asked.manifest.sources").glob("*.request")
        with kjit.Runtime(cache_mode="off") as other:
            self.assertEqual(other.compile_recorded(request, "sm_90").key, made.key)
            with self.assertRaises(kjit.Unsupported):
                other.compile_recorded(request, "sm_80")

    def test_family__says_what_a_field_may_be(self):
        family = kjit.Family(Path(__file__).parents[2] / "examples" / "family_softmax" / "softmax.yaml")
        self.assertEqual(family.legal("rows"), "one of 1, 2, 4, 8")
        with self.assertRaisesRegex(LookupError, "threads"):
            family.legal("width")


class Sealed(WithRuntime):
    def seal(self, **options):
        sealer = kjit.Sealer(runtime=self.runtime)
        sealer.add(SOURCE, "k", "sm_90", headers={"value.h": "#define VALUE 1\n"}, defines={"N": 4})
        return sealer.finish(**options)

    def test_program__opened_by_path_and_by_bytes_has_its_kernels(self):
        path = self.folder / "app.kprog"
        path.write_bytes(self.seal())
        for source in (path, path.read_bytes()):
            program = kjit.Program.open(source, runtime=self.runtime)
            expected = kjit.SealedKernel("source.cu", "k", "sm_90", {"N": "4"}, 2, True)
            self.assertEqual(program.kernels(), [expected])
            self.assertEqual(program.get("k", arch="sm_90").entry, "k")

    def test_program__without_texts_says_so(self):
        (kernel,) = kjit.Program.open(self.seal(with_texts=False), runtime=self.runtime).kernels()
        self.assertFalse(kernel.has_texts)

    def test_program__that_is_signed_is_opened_by_who_trusts_the_key(self):
        secret, public = kjit.bundle_keygen()
        signed = self.seal(secret_key=secret)
        with kjit.Runtime(cache_mode="off", trusted_keys=[public]) as runtime:
            self.assertEqual(len(kjit.Program.open(signed, runtime=runtime).kernels()), 1)
            with self.assertRaises(kjit.Error):
                kjit.Program.open(self.seal(), runtime=runtime)

    def test_program__is_loaded_as_kernel_and_module(self):
        sealer = kjit.Sealer(runtime=self.runtime)
        sealer.add(SOURCE, "k", "sm_90a", headers={"value.h": "#define VALUE 1\n"})
        program = kjit.Program.open(sealer.finish(), runtime=self.runtime)
        self.assertEqual(program.kernel("k").parameters, (8,))
        self.assertEqual(program.module("k")["k"].parameters, (8,))


class Bundles(WithRuntime):
    def test_writer__takes_a_kernel_that_no_folder_has(self):
        with kjit.Runtime(cache_mode="off") as runtime:
            writer = kjit.BundleWriter(runtime=runtime)
            made = writer.add_source(SOURCE, "k", "sm_90", headers={"value.h": "#define VALUE 1\n"})
            with kjit.Bundle(writer.finish()) as bundle:
                self.assertEqual([entry["key"] for entry in bundle.entries()], [made.key])


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
