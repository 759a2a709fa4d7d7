"""kjit tune as people and scripts use it: what it would do on any card, and all that it does on the emulator's.

usage: tune_test.py KJIT EMULATOR_FOLDER
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import harness
from harness import FAILED, NO_GPU, NO_NVRTC, NOWHERE, USAGE

KJIT, EMULATOR = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
PROBLEM = "dtype=bf16,head_dim=64,seq_q=64"
CLASS = "dtype=bf16,causal=0,head_dim=64,head_dim_v=64,group=1,seq_q=64,seq_kv=64,pairs=1"


class TuneCase(harness.KjitCase):
    """Without a driver."""

    program = KJIT

    def setUp(self):
        super().setUp()
        self.environment["KJIT_LIBCUDA"] = NOWHERE

    def dry(self, *arguments, **keywords):
        return self.json("tune", "--dry-run", *arguments, **keywords)


class Usage(TuneCase):
    def test_tune__needs_something_to_measure(self):
        self.refused("tune", naming="--problem")

    def test_tune__options_of_a_dry_run_need_one(self):
        self.refused("tune", "--set", "cells", "--arch", "sm_80", naming="--dry-run")
        self.refused("tune", "--set", "cells", "--compile", naming="--dry-run")
        self.refused("tune", "--set", "cells", "--dry-run", "--out", "x", naming="--out")

    def test_tune__unknown_set_lists_those_there_are(self):
        self.refused("tune", "--dry-run", "--set", "all", naming="cells, small, decode or odd", exit_code=FAILED)

    def test_tune__problem_that_is_wrong_has_its_column(self):
        self.refused("tune", "--dry-run", "--problem", "dtype=bf16,head_dims=64", naming="column 12")
        self.refused("tune", "--dry-run", "--problem", "attention sm_90 dtype=bf16,head_dims=64", naming="column 28")
        self.refused("tune", "--dry-run", "--problem", "attention sm_90", naming="column 16")

    def test_tune__manifest_that_is_wrong_has_its_line(self):
        path = self.write("manifest", "# one\n\nattention sm_90 dtype=bf16\n")
        self.refused("tune", "--dry-run", "--manifest", path, naming=f"{path}:3: head_dim is missing")
        self.refused("tune", "--dry-run", "--manifest", "/nonexistent/m", naming="/nonexistent/m", exit_code=FAILED)

    def test_tune__architecture_that_is_none_is_named(self):
        self.refused("tune", "--dry-run", "--problem", PROBLEM, "--arch", "sm_9x", naming="sm_9x")

    def test_tune__without_a_gpu_has_its_own_exit_code(self):
        self.refused("tune", "--problem", PROBLEM, naming=NOWHERE, exit_code=NO_GPU)


class DryRun(TuneCase):
    def test_dry_run__shows_candidates_around_the_rules_choice(self):
        report = self.dry("--problem", PROBLEM)
        self.assertEqual((report["arch"], report["dry_run"], len(report["classes"])), ("sm_90a", True, 1))
        shown = report["classes"][0]
        self.assertEqual((shown["class"], shown["family"]), (CLASS, "attention_sm90"))
        configs = [candidate["config"] for candidate in shown["candidates"]]
        self.assertEqual(configs[0], shown["rules"])
        self.assertGreater(len(configs), 10)
        self.assertEqual(len(configs), len(set(configs)))
        self.assertEqual({candidate["changes"] for candidate in shown["candidates"]}, {0, 1, 2})
        self.assertTrue(all(candidate["reason"] for candidate in shown["refused"]))

    def test_dry_run__rules_choice_is_what_compile_builds(self):
        text = "dtype=bf16,head_dim=128,batch=4,heads_q=16"
        rules = self.dry("--problem", text)["classes"][0]["rules"]
        shown = self.kjit("compile", "--attention", text, "--arch", "sm_90a", "--show-source", KJIT_TUNED="off").stdout
        for pair in rules.split(","):
            name, value = pair.split("=")
            self.assertIn(f"#define KJIT_{name} {15 if value == 'bf16' else value}\n", shown)

    def test_dry_run__cells_are_36_classes(self):
        self.assertEqual(len(self.dry("--set", "cells")["classes"]), 36)

    def test_dry_run__each_class_stands_once(self):
        report = self.dry("--set", "cells", "--set", "odd", "--problem", PROBLEM, "--problem", PROBLEM + ",seq_kv=60")
        classes = [shown["class"] for shown in report["classes"]]
        self.assertEqual(len(classes), len(set(classes)))
        self.assertLess(len(classes), report["asked"])

    def test_dry_run__other_cards_have_the_other_family(self):
        report = self.dry("--problem", "dtype=fp16,head_dim=128", "--problem", "dtype=fp16,head_dim=264",
                          "--arch", "sm_80")
        self.assertEqual([shown["state"] for shown in report["classes"]], ["open", "unsupported"])
        self.assertEqual(report["classes"][0]["family"], "flash_forward")
        self.assertIn("264", report["classes"][1]["message"])

    def test_dry_run__manifest_gives_its_problems(self):
        path = self.write("manifest", f"# what was recorded\nattention sm_80,sm_90a {PROBLEM}\n"
                          "flash_forward sm_80 (FP16, 64, 64, 32, 4): "
                          "async+eager+swizzled+load_2_2_2_tiles+opt_softmax\n")
        report = self.dry("--manifest", path)
        self.assertEqual([shown["class"] for shown in report["classes"]], [CLASS])
        self.assertEqual((report["asked"], report["skipped"]), (1, 1))

    def test_dry_run__as_text_says_the_same(self):
        report = self.dry("--problem", PROBLEM)["classes"][0]
        text = self.kjit("tune", "--dry-run", "--problem", PROBLEM).stdout
        self.assertEqual(text.count("\n  candidate  "), len(report["candidates"]) - 1)
        self.assertEqual(text.count("\n  refused    "), len(report["refused"]))

    def test_dry_run__compiles_if_asked(self):
        report = self.dry("--problem", "dtype=fp16,head_dim=128", "--arch", "sm_80", "--compile", "--candidates", "4",
                          "--jobs", "2")
        candidates = report["classes"][0]["candidates"]
        self.assertEqual(len(candidates), 4)
        self.assertTrue(all(0 < candidate["registers"] <= 255 for candidate in candidates))
        self.assertIsNone(candidates[0]["dropped"])
        for candidate in candidates[1:]:
            spills = candidate["spill_bytes"] > candidates[0]["spill_bytes"]
            self.assertEqual(candidate["dropped"] is not None, spills, candidate)

    def test_dry_run__without_nvrtc_each_class_fails(self):
        report = self.dry("--problem", PROBLEM, "--compile", "--candidates", "1", exit_code=NO_NVRTC,
                          KJIT_NVRTC=NOWHERE)
        self.assertEqual(report["classes"][0]["state"], "failed")
        self.assertIn("NVRTC", report["classes"][0]["message"])


class Emulated(TuneCase):
    """The whole way, on a card whose clock is this machine's: who wins is chance, what becomes of it is not."""

    TINY = ("--candidates", "2", "--runs", "1", "--margin", "0")

    def setUp(self):
        super().setUp()
        self.environment["KJIT_NVRTC"] = EMULATOR / "libemulated_nvrtc.so"
        self.environment["KJIT_LIBCUDA"] = EMULATOR / "libemulated_cuda.so"
        self.environment["KJIT_EMULATOR_MULTIPROCESSORS"] = "4"

    def tuned(self, **environment):
        return self.json("doctor", **environment)["driver"]["devices"][0]["tuned"]

    def test_tune__result_is_a_row_of_the_cards_table(self):
        report = self.json("tune", "--problem", PROBLEM, *self.TINY)
        shown = report["classes"][0]
        self.assertEqual((shown["class"], shown["state"], report["done"], report["failed"]), (CLASS, "done", 1, 0))
        self.assertGreater(shown["runs"], 0)
        self.assertGreater(shown["rules_microseconds"], 0)
        self.assertLessEqual(shown["microseconds"], shown["rules_microseconds"])
        self.assertEqual(shown["decided_by"] == "rules", shown["config"] == shown["rules"])
        table = Path(report["table"]).read_text()
        self.assertIn(f"\nrow {CLASS} ", table)
        self.assertTrue(table.endswith("\nend 1\n"))
        self.assertIn(" rules\n" if shown["decided_by"] == "rules" else shown["config"], table)
        tuned = self.tuned()
        self.assertEqual((tuned["user_rows"], tuned["path"]), (1, report["table"]))
        self.assertFalse(self.tuned(KJIT_TUNED="off")["enabled"])
        self.assertIn("1 rows of ", self.kjit("doctor").stdout)

    def test_tune__other_cards_run_the_other_family(self):
        problem = "dtype=fp16,head_dim=64,seq_q=64,causal=1,heads_q=4,heads_kv=2"
        shown = self.json("tune", "--problem", problem, *self.TINY, KJIT_EMULATOR_CARD="a100")["classes"][0]
        self.assertEqual((shown["state"], shown["family"]), ("done", "flash_forward"))
        self.assertEqual(self.tuned(KJIT_EMULATOR_CARD="a100")["user_rows"], 1)
        self.assertEqual(self.tuned()["user_rows"], 0)

    def test_tune__table_of_ones_own_grows(self):
        table = self.folder / "card.kjit-tuned"
        for rows, problem in ((1, PROBLEM), (2, PROBLEM + ",causal=1")):
            report = self.json("tune", "--problem", problem, "--out", table, "--candidates", "1", "--runs", "1")
            self.assertEqual((report["table"], report["done"]), (str(table), 1))
            self.assertTrue(table.read_text().endswith(f"\nend {rows}\n"))
        self.assertEqual(self.tuned()["user_rows"], 0)
        self.assertEqual([path.name for path in self.folder.glob("card*")], ["card.kjit-tuned"])
        table.write_text(table.read_text()[:-2])
        failed = self.json("tune", "--problem", PROBLEM, "--out", table, "--candidates", "1", "--runs", "1",
                           exit_code=USAGE)
        self.assertIn("line 16: column 1", failed["classes"][0]["message"])

    def test_tune__interrupted_says_so_and_dies_of_it(self):
        process = subprocess.Popen([str(KJIT), "tune", "--set", "cells", "--jobs", "1", "--json"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=harness.full_environment(self.environment))
        self.assertIn("compiling", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=280)
        self.assertEqual(process.returncode, -signal.SIGINT, err)
        report = json.loads(out)
        self.assertEqual((report["interrupted"], report["done"]), (True, 0))
        self.assertIn("interrupted", err)


if not (EMULATOR / "libemulated_cuda.so").exists():
    del Emulated  # beside sanitizers there is none

if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=KJIT)
