"""Compiling, warming, the cache and inspection from Python. No GPU."""

import ctypes
import json
import pickle
import sys
import threading
import time
import unittest

import harness
import kjit

TEXT = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
CUSTOM = '#include "scale.cuh"\nextern "C" __global__ void scale(float *x) { x[threadIdx.x] = SCALE * FACTOR; }\n'


def has_nvrtc():
    with kjit.Runtime(cache_mode="off") as runtime:
        return runtime.doctor()["nvrtc_status"] == 0


class Folder(harness.TemporaryFolder):
    def setUp(self):
        super().setUp()
        self.runtime = self.open()

    def open(self, **options):
        runtime = kjit.Runtime(**{"cache_dir": str(self.folder / "cache"), "ignore_environment": True, **options})
        self.addCleanup(runtime.close)
        return runtime


@unittest.skipUnless(has_nvrtc(), "NVRTC is not installed")
class Compiling(Folder):
    def test_compile__tells_what_the_compiler_made(self):
        artifact = self.runtime.compile(TEXT, "sm_80")
        self.assertEqual(artifact.cubin[:4], b"\x7fELF")
        self.assertEqual(len(artifact.cubin), artifact.cubin_bytes)
        self.assertGreater(artifact.registers, 32)
        self.assertEqual((artifact.spill_bytes, artifact.log, artifact.max_threads), (0, "", 128))
        self.assertEqual((artifact.arch, artifact.origin, len(artifact.key)), ("sm_80", "built", 64))

    def test_compile__again_answers_from_memory_then_from_the_folder(self):
        first = self.runtime.compile(TEXT, "sm_80")
        self.assertEqual(self.runtime.compile(TEXT, "sm_80").origin, "memory")
        second = self.open().compile(kjit.FlashForwardKernelConfig.parse(TEXT), "sm_80")
        self.assertEqual((second.origin, second.key, second.cubin), ("user", first.key, first.cubin))

    def test_compile__can_be_forbidden(self):
        with self.assertRaisesRegex(kjit.NotFound, "forbids compiling"):
            self.runtime.compile(TEXT, "sm_80", no_compile=True)

    def test_compile_attention__is_the_kernel_that_is_described(self):
        for arch in ("sm_80", "sm_90a"):
            described = self.runtime.describe_attention("bf16", 64, arch, seq_q=256)
            artifact = self.runtime.compile_attention("bf16", 64, arch, seq_q=256)
            self.assertEqual(described.split()[0], artifact.entry, described)

    def test_describe_attention__on_a_card_that_is_not_here(self):
        cards = kjit.known_cards()
        self.assertEqual((cards["H20"]["multiprocessors"], cards["H200"]["memory_gb_s"]), (78, 4800))
        for card in cards:
            described = self.runtime.describe_attention("bf16", 128, card=card, seq_q=4096)
            hopper = cards[card]["arch"] == "sm_90"
            self.assertEqual(described.split()[0], "attention_sm90" if hopper else "flash_forward", card)
        with self.assertRaisesRegex(kjit.NotFound, "no card 'H2'"):
            self.runtime.describe_attention("bf16", 128, card="H2")

    def test_tiered__is_an_option(self):
        for tiered in (None, True, False, 3):
            with kjit.Runtime(cache_mode="off", tiered=tiered) as runtime:
                self.assertEqual(runtime.stats()["first_tier_calls"], 0)
        with self.assertRaisesRegex(ValueError, "tiered is 0: must be True, False, or a number"):
            kjit.Runtime(tiered=0)
        with self.assertRaisesRegex(TypeError, "tiered is 'on': must be a whole number"):
            kjit.Runtime(tiered="on")

    def test_compile_attention__names_sizes_that_a_problem_has_not(self):
        with self.assertRaisesRegex(TypeError, "heads: an attention problem has batch, .*heads_kv"):
            self.runtime.compile_attention("bf16", 64, "sm_80", heads=3)

    def test_compile_source__takes_defines_and_headers(self):
        artifact = self.runtime.compile_source(
            CUSTOM, "scale", "sm_80", defines={"SCALE": 3}, headers={"scale.cuh": "#define FACTOR 2.0f\n"}
        )
        self.assertEqual((artifact.entry, artifact.origin), ("scale", "built"))

    def test_compile_source__finds_headers_in_folders(self):
        self.write("scale.cuh", "#define FACTOR 2.0f\n")
        options = {"defines": {"SCALE": 3}, "options": ["--maxrregcount=32"]}
        self.runtime.compile_source(CUSTOM, "scale", "sm_80", include_dirs=[str(self.folder)], **options)

    def test_compile_source__keeps_the_compilers_log_on_failure(self):
        with self.assertRaises(kjit.CompileError) as caught:
            self.runtime.compile_source('extern "C" __global__ void k() { undefined(); }', "k", "sm_80", name="mine.cu")
        self.assertIn("mine.cu(1): error", caught.exception.log)
        self.assertEqual(caught.exception.status_name, "KJIT_ERR_COMPILE")

    def test_warm__counts_what_it_did(self):
        other = TEXT.replace("64, 32", "64, 64")
        seen = []
        first = self.runtime.warm([TEXT, other, TEXT], "sm_80", progress=lambda *count: seen.append(count))
        self.assertEqual([first[name] for name in ("requested", "distinct", "built", "failed")], [3, 2, 2, 0])
        self.assertEqual(seen, [(1, 3), (2, 3), (3, 3)])
        self.assertEqual(first["not_kept"], 0)
        second = self.open().warm([TEXT, other], ["sm_80"])
        self.assertEqual([second[name] for name in ("distinct", "built", "cached")], [2, 0, 2])

    def test_warm__goes_on_past_a_failure(self):
        bad = TEXT.replace("64, 64, 32", "64, 96, 32")
        report = self.runtime.warm([bad, TEXT], "sm_80", jobs=1)
        self.assertEqual((report["built"], report["failed"]), (1, 1))
        self.assertIn("B_r is 96", report["errors"][bad, "sm_80"])

    def test_threads__that_want_one_kernel_build_it_once(self):
        threads = [threading.Thread(target=self.runtime.compile, args=(TEXT, "sm_80")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.runtime.stats()["builds"], 1)

    def test_cache__shows_lists_and_clears_its_entries(self):
        artifact = self.runtime.compile(TEXT, "sm_80")
        self.assertEqual(self.runtime.cache_path(), str(self.folder / "cache"))
        self.assertEqual(self.runtime.cache_stats()["entries"], 1)
        (entry,) = self.runtime.cache_entries()
        self.assertEqual((entry["key"], entry["family"], entry["origin"]), (artifact.key, "flash_forward", "user"))
        self.assertEqual(self.runtime.cache_clear()["removed"], 1)
        self.assertEqual(self.runtime.cache_entries(), [])

    def test_source__begins_with_the_constants(self):
        self.assertIn("#define KJIT_d_head 64\n", self.runtime.source(TEXT, "sm_80"))

    def test_fork__gives_the_child_a_runtime_of_its_own(self):
        code = (
            "import os, kjit\n"
            f"kjit.compile('{TEXT}', 'sm_80')\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            f"    print(kjit.compile('{TEXT}', 'sm_80').origin, flush=True); raise SystemExit\n"
            "assert os.waitpid(pid, 0)[1] == 0\n"
        )
        environment = {"KJIT_CACHE_DIR": self.folder / "forked"}
        result = self.run_command(sys.executable, "-c", code, environment=environment)
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "user"), result.stderr)

    def test_exit__hands_the_counters_to_the_folder(self):
        code = f"import kjit; kjit.compile('{TEXT}', 'sm_80')"
        environment = {"KJIT_CACHE_DIR": self.folder / "kept"}
        for _ in range(2):
            self.assertEqual(self.run_command(sys.executable, "-c", code, environment=environment).returncode, 0)
        stats = self.open(cache_dir=str(self.folder / "kept")).cache_stats()
        self.assertEqual((stats["builds"], stats["hits"]), (1, 1))


    def test_warm__says_what_could_not_be_kept(self):
        blocked = self.write("file", "")
        report = self.open(cache_dir=str(blocked / "cache")).warm(TEXT, "sm_80")
        self.assertEqual((report["built"], report["failed"], report["not_kept"]), (1, 0, 1))
        report = self.open(cache_mode="off").warm(TEXT, "sm_80")
        self.assertEqual((report["built"], report["not_kept"]), (1, 0))

    def test_exit__while_daemon_threads_compile_is_quiet(self):
        """NVRTC takes itself down when the process ends, and a thread that is inside it then would crash."""
        code = (
            "import kjit, threading, time\n"
            "def work():\n"
            "    try:\n"
            f"        kjit.compile('{TEXT}', 'sm_90')\n"
            "    except kjit.Error:\n"
            "        pass\n"  # it was cancelled
            "for _ in range(2): threading.Thread(target=work, daemon=True).start()\n"
            "time.sleep(0.3)\n"
        )
        environment = {"KJIT_CACHE_DIR": self.folder / "quiet"}
        result = self.run_command(sys.executable, "-c", code, environment=environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class Looking(Folder):
    def test_sources__are_kept_up_to_a_bound_or_not_at_all(self):
        for most in (None, 0, 1 << 20):
            self.assertEqual(kjit.Runtime(source_max_bytes=most).stats()["builds"], 0)

    def test_options__with_an_unknown_mode_are_refused(self):
        with self.assertRaisesRegex(ValueError, "cache_mode is 'write'"):
            kjit.Runtime(cache_mode="write")

    def test_log__hears_of_a_cache_that_fails(self):
        lines = []
        blocked = self.write("file", "")
        runtime = self.open(cache_dir=str(blocked / "cache"), log=lambda level, line: lines.append(line))
        runtime.cache_stats()
        self.assertTrue(any("memory only" in line for line in lines), lines)

    def test_errors__are_built_in_kinds_too_and_can_be_pickled(self):
        with self.assertRaises(ValueError) as caught:
            self.runtime.compile("(FP16)", "sm_80")
        copy = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(copy), str(copy)), (kjit.ParseError, str(caught.exception)))
        self.assertEqual(copy.status, caught.exception.status)

    def test_arch__that_is_none_is_named(self):
        with self.assertRaisesRegex(kjit.Error, "sm_1x"):
            self.runtime.compile(TEXT, "sm_1x")

    def test_stats__begin_at_zero(self):
        self.assertEqual(set(self.runtime.stats().values()), {0})

    def test_doctor__prints_and_writes_json(self):
        environment = {"KJIT_CACHE_DIR": self.folder / "cache"}
        text = self.run_command(sys.executable, "-m", "kjit", "doctor", environment=environment)
        self.assertEqual(text.returncode, 0, text.stderr)
        for word in ("kjit", "Python", "torch", "NVRTC", "driver", "cache"):
            self.assertRegex(text.stdout, rf"(?m)^{word} ")
        found = json.loads(
            self.run_command(sys.executable, "-m", "kjit", "doctor", "--json", environment=environment).stdout
        )
        self.assertEqual((found["version"], found["cache_path"]), (kjit.__version__, str(self.folder / "cache")))

    def test_command__that_is_none_is_a_usage_error(self):
        self.assertEqual(self.run_command(sys.executable, "-m", "kjit", "cure").returncode, 2)

    def test_close__waits_for_another_thread_that_gives_a_handle_back(self):
        class Owner:
            pass

        released, begun, owners = [], threading.Event(), [Owner()]

        def release(handle):
            begun.set()
            time.sleep(0.05)
            released.append(handle.value)

        runtime = kjit.Runtime(cache_mode="off")
        runtime._own(owners[0], release, ctypes.c_void_p(7))
        thread = threading.Thread(target=owners.clear)
        thread.start()
        begun.wait()
        runtime.close()
        self.assertEqual(released, [7])
        thread.join()
        self.assertEqual(released, [7])

    def test_default_runtime__is_one(self):
        self.assertIs(kjit.default_runtime(), kjit.default_runtime())


@unittest.skipUnless(has_nvrtc(), "NVRTC is not installed")
class Bundles(Folder):
    """A kernel is compiled once; afterwards it comes from a bundle, with no cache folder and no compiler."""

    def setUp(self):
        super().setUp()
        self.artifact = self.compile(self.runtime)
        self.secret, self.public = kjit.bundle_keygen()

    def compile(self, runtime, **options):
        return runtime.compile_source('extern "C" __global__ void k() {}', "k", "sm_80", **options)

    def bundle(self, secret_key=None, compress=None):
        writer = kjit.BundleWriter(compress, runtime=self.runtime)
        writer.add(self.artifact)
        return writer.finish(secret_key=secret_key)

    def test_bundle__of_bytes_or_of_a_file_answers(self):
        made = self.bundle()
        path = self.folder / "kernels.bundle"
        path.write_bytes(made)
        for bundle in (made, path, str(path)):
            runtime = self.open(cache_mode="off", bundles=[bundle], memory_max_entries=4, memory_max_bytes=1 << 20)
            found = self.compile(runtime, no_compile=True)
            self.assertEqual((found.origin, found.cubin), ("bundle", self.artifact.cubin))

    def test_bundle__of_one_path_alone_is_refused(self):
        with self.assertRaisesRegex(TypeError, "bundles must be several"):
            self.open(bundles="kernels.bundle")

    def test_trusted_keys__open_what_they_signed_alone(self):
        signed = self.bundle(self.secret)
        runtime = self.open(cache_mode="off", bundles=[signed], trusted_keys=[self.public])
        self.assertEqual(self.compile(runtime, no_compile=True).origin, "bundle")
        _, other = kjit.bundle_keygen()
        for bundle, key in ((signed, other), (self.bundle(), self.public)):
            with self.assertRaises(kjit.Error) as caught:
                self.open(bundles=[bundle], trusted_keys=[key])
            self.assertEqual(caught.exception.status_name, "KJIT_ERR_UNTRUSTED")

    def test_bundle__is_looked_into(self):
        with kjit.Bundle(self.bundle(self.secret), trusted_keys=[self.public]) as bundle:
            (entry,) = bundle.entries()
            info = bundle.info()
        self.assertEqual((entry["entry"], entry["arch"], info["entries"]), ("k", "sm_80", 1))
        self.assertEqual(info["signer"], self.public)

    def test_writer__may_be_given_a_compressor_that_fails(self):
        def fails(dictionary, data, capacity):
            raise RuntimeError

        self.assertEqual(self.bundle(compress=fails), self.bundle())

    def test_writer__names_a_kernel_that_the_folder_lacks(self):
        runtime = self.open(cache_dir=str(self.folder / "other"))
        with self.assertRaisesRegex(LookupError, "not in the cache folder"):
            kjit.BundleWriter(runtime=runtime).add(self.artifact)

    def test_record__has_a_line_of_each_request(self):
        path = self.folder / "asked.manifest"
        runtime = self.open(record=path)
        runtime.compile(TEXT, "sm_80")
        runtime.compile(TEXT, "sm_80")
        runtime.record(None)
        self.compile(runtime)
        self.assertEqual(path.read_text().count("flash_forward"), 1)
        self.assertNotIn("source.cu", path.read_text())

    def test_options__that_are_none_are_named(self):
        with self.assertRaisesRegex(ValueError, "pch is .sometimes.: must be one of off, auto, always"):
            self.open(pch="sometimes")


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
