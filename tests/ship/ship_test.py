"""From what a program asked for to kernels that it ships: record, warm, bundle, sign, and nothing else left.

usage: ship_test.py KJIT EXAMPLE_BUNDLE LIBKJIT_A BENCH_START_TIME C_COMPILER CUDA_INCLUDE
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
import harness  # noqa: E402
from harness import DONE, FAILED, NO_GPU, NO_NVRTC, NOWHERE, USAGE  # noqa: E402

KJIT, EXAMPLE, ARCHIVE, START_TIME = (Path(word).resolve() for word in sys.argv[1:5])
COMPILER, CUDA = sys.argv[5:7]
ARCHS = ("sm_80", "sm_90a", "sm_120")
if os.environ.get("KJIT_TEST_ALL_CONFIGS") == "1":
    ARCHS += ("sm_86", "sm_89", "sm_90", "sm_100a")
SCHEDULERS = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP",
              "JOB_COMPLETION_INDEX", "PARALLEL_SEQ")
KILLS = int(os.environ.get("KJIT_TEST_KILLS", 15))


class ShipCase(harness.KjitCase):
    """With no scheduler around it."""

    program = KJIT

    def setUp(self):
        super().setUp()
        self.environment.update(dict.fromkeys(SCHEDULERS))

    def entries(self):
        """Path -> inode of every entry in the cache folder."""
        return {path: path.stat().st_ino for path in self.cache.glob("entries/*/*")}


class Ship(ShipCase):
    def test_ship__recorded_warmed_bundled_signed_answers_everything_without_nvrtc(self):
        manifest, bundle, signed = (self.folder / name for name in ("asked.manifest", "all.kjb", "signed.kjb"))
        recorded = self.json("warm", "--set", "progression", "--arch", "sm_80", "--jobs", 2, KJIT_RECORD=manifest)
        lines = manifest.read_text().splitlines()
        self.assertEqual(len(lines), recorded["distinct"])
        self.assertEqual(len(set(lines)), len(lines))

        warmed = self.json("warm", "--manifest", manifest, "--arch", ",".join(ARCHS), "--jobs", 2)
        self.assertEqual(warmed["distinct"], len(lines) * len(ARCHS))
        self.assertEqual((warmed["failed"], warmed["left_out"]), (0, 0))
        self.assertEqual(warmed["cached"], len(lines))  # those of sm_80

        made = self.json("bundle", "create", bundle, "--manifest", manifest, "--arch", ",".join(ARCHS))
        self.assertEqual((made["entries"], made["archs"]), (warmed["distinct"], len(ARCHS)))
        self.kjit("bundle", "keygen", self.folder / "release")
        self.assertEqual((self.folder / "release.key").stat().st_mode & 0o777, 0o600)
        self.kjit("bundle", "sign", bundle, "--key", self.folder / "release.key", "-o", signed)
        self.kjit("bundle", "verify", signed, "--key", self.folder / "release.pub")

        shutil.rmtree(self.cache)
        alone = {"KJIT_NVRTC": NOWHERE, "KJIT_BUNDLE": signed, "KJIT_CACHE_MODE": "off"}
        answered = self.json("warm", "--manifest", manifest, "--arch", ",".join(ARCHS), **alone)
        self.assertEqual((answered["built"], answered["failed"]), (0, 0))
        self.assertEqual(answered["cached"], made["entries"])
        for line, arch in zip(lines, ARCHS):
            found = self.json("compile", "--flash", line.split(" ", 2)[2], "--arch", arch, **alone)
            self.assertEqual((found["source"], found["arch"]), ("bundle", arch))
        self.assertFalse(self.cache.exists())

    def test_ship__a_miss_without_nvrtc_names_kernel_architecture_and_remedy(self):
        result = self.kjit("compile", "--flash", "(FP16, 64, 64, 32, 4): async+load_2_2_2_tiles", "--arch", "sm_89",
                           exit_code=NO_NVRTC, KJIT_NVRTC=NOWHERE)
        for word in ("flash_forward", "sm_89", "kjit bundle create", NOWHERE):
            self.assertIn(word, result.stderr)


class Bundle(ShipCase):
    FORM = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"

    def make(self, name="one.kjb", archs="sm_80,sm_90"):
        path, manifest = self.folder / name, self.write("m", f"flash_forward sm_80 {self.FORM}\n")
        self.kjit("bundle", "create", path, "--manifest", manifest, "--arch", archs)
        return path

    def test_bundle__caches_filled_apart_give_equal_bytes(self):
        first = self.make("first.kjb").read_bytes()
        self.environment["KJIT_CACHE_DIR"] = self.folder / "another"
        self.assertEqual(first, self.make("second.kjb").read_bytes())

    def test_bundle__from_the_cache_is_filtered(self):
        self.make()
        both, one = self.folder / "both.kjb", self.folder / "one-arch.kjb"
        self.assertEqual(self.json("bundle", "create", both)["entries"], 2)
        self.assertEqual(self.json("bundle", "create", one, "--arch", "sm_90")["entries"], 1)
        self.assertEqual(self.json("bundle", "create", one, "--family", "flash_forward")["entries"], 2)
        self.kjit("bundle", "create", self.folder / "none.kjb", "--family", "nobody", exit_code=FAILED)
        self.assertFalse((self.folder / "none.kjb").exists())

    def test_bundle__inspect_lists_what_is_in_it(self):
        shown = self.json("bundle", "inspect", self.make())
        self.assertEqual({kernel["arch"] for kernel in shown["kernels"]}, {"sm_80", "sm_90"})
        self.assertEqual({kernel["label"] for kernel in shown["kernels"]}, {self.FORM})
        self.assertEqual((shown["damaged"], shown["signer"]), (0, ""))

    def test_bundle__altered_truncated_or_signed_by_another_is_refused(self):
        self.kjit("bundle", "keygen", self.folder / "ours")
        self.kjit("bundle", "keygen", self.folder / "theirs")
        unsigned, ours = self.make(), self.folder / "ours.pub"
        signed = self.folder / "signed.kjb"
        self.kjit("bundle", "sign", unsigned, "--key", self.folder / "ours.key", "-o", signed)
        good = signed.read_bytes()
        self.kjit("bundle", "sign", signed, "--key", self.folder / "theirs.key", "-o", self.folder / "theirs.kjb")
        bad = [unsigned.read_bytes(), (self.folder / "theirs.kjb").read_bytes(), good[:-1], good[: len(good) // 2],
               good[:5000] + b"\0" + good[5001:] if good[5000] else good[:5000] + b"\1" + good[5001:]]
        for number, data in enumerate(bad):
            path = self.folder / f"bad{number}.kjb"
            path.write_bytes(data)
            result = self.kjit("bundle", "verify", path, "--key", ours, exit_code=FAILED)
            self.assertIn("KJIT_ERR_UNTRUSTED", result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.kjit("bundle", "verify", signed, "--key", ours, "--key", self.folder / "theirs.pub")

    def test_bundle__signing_again_replaces_the_signature(self):
        path = self.make()
        unsigned = path.read_bytes()
        for name in ("one", "two"):
            self.kjit("bundle", "keygen", self.folder / name)
            self.kjit("bundle", "sign", path, "--key", self.folder / f"{name}.key")
            self.kjit("bundle", "verify", path, "--key", self.folder / f"{name}.pub")
        self.assertEqual(path.read_bytes()[: len(unsigned)], unsigned)
        self.assertEqual(len(path.read_bytes()), len(unsigned) + 104)

    def test_bundle__usage_errors_are_named(self):
        for arguments, naming in ((("bundle",), "action"), (("bundle", "make"), "'make'"),
                                  (("bundle", "create"), "FILE is missing"),
                                  (("bundle", "create", "x", "--set", "prebuilt"), "--arch"),
                                  (("bundle", "create", "x", "--c-source", "--symbol", "a-b"), "a-b"),
                                  (("bundle", "inspect", "x", "--set", "prebuilt"), "create"),
                                  (("bundle", "sign", "x"), "--key")):
            self.assertIn(naming, self.kjit(*arguments, exit_code=USAGE).stderr)

    def test_bundle__is_imported_into_a_cache(self):
        path = self.make()
        shutil.rmtree(self.cache)
        imported = self.folder / "cache"
        environment = {"KJIT_NVRTC": NOWHERE}
        self.kjit("cache", "import", path, **environment)
        self.assertEqual(len(self.entries()), 2, imported)
        found = self.json("compile", "--flash", self.FORM, "--arch", "sm_90", **environment)
        self.assertEqual(found["source"], "user")


class Examples(ShipCase):
    MANIFEST = ROOT / "examples/bundle/kernels.manifest"

    def run_example(self, *command):
        result = self.run_command(*command, environment={**self.environment, "KJIT_NVRTC": NOWHERE})
        self.assertIn(result.returncode, (DONE, NO_GPU), result.stdout + result.stderr)
        self.assertIn("from bundle", result.stdout)
        return result

    def test_example__runs_from_a_bundle_file(self):
        bundle = self.folder / "kernels.kjb"
        self.kjit("bundle", "create", bundle, "--manifest", self.MANIFEST, "--arch", "sm_90,sm_80")
        shutil.rmtree(self.cache)
        self.run_example(EXAMPLE, bundle, "sm_80")
        self.assertFalse(self.cache.exists())

    def test_example__runs_with_its_kernels_linked_in(self):
        source = self.folder / "kernels.c"
        self.kjit("bundle", "create", source, "--manifest", self.MANIFEST, "--arch", "sm_90,sm_80", "--c-source")
        program = self.folder / "linked_attention"
        folder = ROOT / "examples/bundle"
        built = self.run_command(COMPILER, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DLINKED_BUNDLE",
                                 f"-I{ROOT / 'include'}", "-isystem", CUDA, "-o", program, folder / "main.c",
                                 ROOT / "examples/support/gpu.c", source, ARCHIVE, "-lm", "-ldl", "-pthread")
        self.assertEqual(built.returncode, 0, built.stderr)
        shutil.rmtree(self.cache)
        self.run_example(program, "sm_80")


class GpuBundle(ShipCase):
    """The word "ship" of the folder that tools/gpu-bundle makes, on a machine that may have no GPU."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kernels = Path(tempfile.mkdtemp(prefix="kjit-ship-")) / "kernels.kjb"
        cls.addClassCleanup(shutil.rmtree, cls.kernels.parent)

    def make(self):
        folder = self.folder / "carried"
        for name, path in (("bin/kjit", KJIT), ("bin/example_bundle", EXAMPLE), ("run", ROOT / "tools/gpu-bundle-run"),
                           ("bench/bench_start_time", START_TIME),
                           ("bench/start_time.py", ROOT / "bench/start_time.py"),
                           ("lib/libkjit.so.0", ARCHIVE.parent / "libkjit.so.0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
        (folder / "ship").mkdir()
        if not self.kernels.exists():
            self.kjit("bundle", "create", self.kernels, "--manifest", Examples.MANIFEST)
        shutil.copy(self.kernels, folder / "ship")
        return folder

    def test_ship__runs_the_example_without_opening_nvrtc(self):
        folder = self.make()
        result = self.run_command(folder / "run", "ship", environment={**self.environment, "OUT": self.folder / "out"})
        self.assertRegex(result.stdout, r"example_bundle +(ok|skipped) ", result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"start_time.py +(ok|skipped) ")
        self.assertIn("0 failed", result.stdout)
        self.assertEqual(result.returncode == DONE, " 0 skipped" in result.stdout)
        self.assertIn("from bundle", (self.folder / "out/example_bundle.log").read_text())

    def test_ship__an_opened_nvrtc_is_seen(self):
        folder = self.make()
        (folder / "bin/example_bundle").write_text(
            "#!/bin/sh\nunset KJIT_NVRTC\n"
            f"KJIT_CACHE_MODE=off exec {KJIT} compile --flash '{Bundle.FORM}' --arch sm_80\n")
        result = self.run_command(folder / "run", "ship", environment={**self.environment, "OUT": self.folder / "out"})
        self.assertIn("example_bundle opened NVRTC", result.stdout)
        self.assertEqual(result.returncode, FAILED)

    def test_ship__words_that_are_none_are_named(self):
        result = self.run_command(self.make() / "run", "shop", environment=self.environment)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn("shop: tests, python, sanitizer, ship, bench", result.stderr)


class Shards(ShipCase):
    """Which requests belong to a part shows without compiling: without NVRTC each of them fails by name."""

    def requests(self, *arguments, **environment):
        result = self.json("warm", "--set", "prebuilt", "--set", "autotune", "--arch", "sm_80,sm_90", *arguments,
                           exit_code=NO_NVRTC, KJIT_NVRTC=NOWHERE, KJIT_CACHE_MODE="off", **environment)
        return frozenset(failure["request"] for failure in result["failures"])

    def test_shards__of_seven_are_disjoint_complete_and_balanced(self):
        whole = self.requests()
        parts = [self.requests("--shard", f"{index}/7") for index in range(1, 8)]
        self.assertEqual(frozenset.union(*parts), whole)
        for one, other in itertools.combinations(parts, 2):
            self.assertFalse(one & other)
        self.assertLessEqual(max(map(len, parts)) - min(map(len, parts)), 1)

    def test_shards__do_not_depend_on_how_the_list_is_written(self):
        lines = (ROOT / "cache/manifests/autotune.manifest").read_text().splitlines()
        random.Random(4).shuffle(lines)
        shuffled = self.write("m", "\n".join(lines + lines[:20]) + "\n")
        for index in range(1, 4):
            parts = [self.json("warm", *asked, "--arch", "sm_80", "--shard", f"{index}/3", exit_code=NO_NVRTC,
                               KJIT_NVRTC=NOWHERE, KJIT_CACHE_MODE="off")["failures"]
                     for asked in (("--set", "autotune"), ("--manifest", shuffled))]
            self.assertEqual(*parts)

    def test_shards__schedulers_give_the_index(self):
        third = self.requests("--shard", "3/4")
        self.assertEqual(third, self.requests("--shard", "/4", JOB_COMPLETION_INDEX=2))
        self.assertEqual(third, self.requests("--shard", "/4", PARALLEL_SEQ=3))
        slurm = {"SLURM_ARRAY_TASK_ID": 14, "SLURM_ARRAY_TASK_MIN": 10, "SLURM_ARRAY_TASK_STEP": 2,
                 "SLURM_ARRAY_TASK_COUNT": 4}
        self.assertEqual(third, self.requests(**slurm))
        self.assertEqual(third, self.requests("--shard", "/4", **slurm))
        self.assertEqual(self.requests(), self.requests("--shard", "1/1", **slurm))

    def test_shards__an_index_outside_is_a_usage_error(self):
        for shard, environment in (("/3", {"PARALLEL_SEQ": 4}), ("/3", {"PARALLEL_SEQ": 0}), ("/3", {}), ("0/3", {}),
                                   ("4/3", {}), ("/3", {"JOB_COMPLETION_INDEX": "x"}), ("1", {}), ("1/", {})):
            self.kjit("warm", "--set", "progression", "--arch", "sm_80", "--shard", shard, exit_code=USAGE,
                      **environment)


class Manifests(ShipCase):
    def test_manifest__what_an_architecture_cannot_run_is_left_out(self):
        big = "(FP16, 256, 128, 64, 8): async+eager+swizzled+load_2_2_2_tiles"  # 128 KiB of shared memory
        manifest = self.write("m", f"flash_forward sm_80 {big}\nflash_forward sm_80 {Bundle.FORM}\n")
        result = self.json("warm", "--manifest", manifest, "--arch", "sm_86", exit_code=NO_NVRTC, KJIT_NVRTC=NOWHERE)
        self.assertEqual((result["left_out"], result["requested"]), (1, 1))

    def test_manifest__an_error_has_file_line_and_column(self):
        manifest = self.write("m", "# fine\nflash_forward sm_80 (FP16, 64, 64, 32, 4): asink+load_2_2_2_tiles\n")
        result = self.kjit("warm", "--manifest", manifest, exit_code=USAGE)
        self.assertRegex(result.stderr, r"/m:2: .*column \d+.*asink")


class CacheFolder(ShipCase):
    """What cache/ has ready."""

    CACHE = ROOT / "cache"

    def requests(self, *arguments):
        result = self.json("warm", *arguments, exit_code=NO_NVRTC, KJIT_NVRTC=NOWHERE, KJIT_CACHE_MODE="off")
        return frozenset(failure["request"] for failure in result["failures"])

    def test_manifests__of_the_sets_are_the_sets(self):
        for name in ("progression", "autotune", "prebuilt"):
            manifest = self.CACHE / f"manifests/{name}.manifest"
            self.assertEqual(self.requests("--manifest", manifest, "--arch", "sm_80"),
                             self.requests("--set", name, "--arch", "sm_80"), name)

    def test_manifests__of_models_can_be_built(self):
        self.assertGreater(len(self.requests("--manifest", self.CACHE / "manifests/models.manifest")), 10)

    def test_scripts__fill_an_image_and_hand_on_a_signed_bundle(self):
        manifest = self.write("m", f"flash_forward sm_80 {Bundle.FORM}\n")
        site, bundle = self.folder / "site", self.folder / "kernels.kjb"
        self.kjit("bundle", "keygen", self.folder / "ci")
        environment = {**self.environment, "KJIT": KJIT, "KJIT_SIGNING_KEY": self.folder / "ci.key"}
        for command in ((self.CACHE / "warm-image", site, "sm_80", manifest),
                        (self.CACHE / "warm-ci", site, bundle, "sm_80", manifest)):
            result = self.run_command(*command, environment=environment)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.kjit("bundle", "verify", bundle, "--key", self.folder / "ci.pub")
        found = self.json("compile", "--flash", Bundle.FORM, "--arch", "sm_80", KJIT_NVRTC=NOWHERE,
                          KJIT_CACHE_SITE=site)
        self.assertEqual(found["source"], "site")


class Interrupted(ShipCase):
    """Over small kernels, so that some are finished between two kills."""

    FORMS = [f"({dtype}, 32, {rows}, {keys}, 1): {copy}load_{slices}_tiles"
             for dtype, rows, keys, copy, slices in itertools.product(
                 ("FP16", "BF16"), (16, 32, 48, 64), (16, 32), ("", "async+"), ("0_0_0", "0_2_0", "0_0_2", "2_2_2"))]

    def setUp(self):
        super().setUp()
        self.environment.update(harness.REALLY_COMPILES)
        self.manifest = self.write("small", "".join(f"flash_forward sm_80 {form}\n" for form in self.FORMS))

    def start(self):
        return subprocess.Popen([str(KJIT), "warm", "--manifest", str(self.manifest), "--jobs", "2"],
                                env=harness.full_environment(self.environment), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def seconds_of_one(self):
        started = time.monotonic()
        self.kjit("compile", "--flash", self.FORMS[0], "--arch", "sm_80", KJIT_CACHE_MODE="off")
        return time.monotonic() - started

    def test_warm__ctrl_c_says_how_to_go_on_and_leaves_a_sound_cache(self):
        process = self.start()
        deadline = time.monotonic() + harness.HANGS_S
        # Of two workers each may have published one that it has not reported yet.
        while len(self.entries()) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=harness.HANGS_S)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertRegex(said, r"interrupted: \d+ of \d+ are done and in the cache; the same command goes on")
        done = int(said.split("interrupted: ")[1].split()[0])
        self.assertGreaterEqual(done, 1)
        self.assertEqual(self.json("cache", "verify")["damaged"], 0)
        self.assertGreaterEqual(len(self.entries()), done)

    def test_warm__killed_at_random_never_builds_again_what_was_finished(self):
        chance = random.Random(20250611)
        finished = {}
        longest = 2.5 * self.seconds_of_one()
        rounds = 0
        while rounds < KILLS or not finished:
            rounds += 1
            longest *= 1.2 if rounds > KILLS else 1  # the machine has become slower since
            process = self.start()
            time.sleep(chance.uniform(0.02, longest))
            os.killpg(process.pid, chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)))
            process.communicate(timeout=harness.HANGS_S)
            now = self.entries()
            for path, inode in finished.items():
                self.assertEqual(now.get(path), inode, "built again")
            finished = now
        self.assertEqual(self.json("cache", "verify")["damaged"], 0)


if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=KJIT)
