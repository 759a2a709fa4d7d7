"""kjit tune --family with runners that answer by formulas, and kjit family choose. No GPU.
usage: tune_family_test.py KJIT"""

import json
import shutil
import sys
from pathlib import Path

import harness
from harness import DONE, FAILED, NO_GPU, NOWHERE, USAGE

KJIT = Path(sys.argv[1]).resolve()
SOFTMAX = Path(__file__).resolve().parents[2] / "examples" / "family_softmax"
PROBLEM = "dtype=fp16,columns=4096,row_count=1000"
CLASS = "dtype=fp16,columns=4096,rows=128"
BEGIN = """import os, sys, time
for number, line in enumerate(sys.stdin):
    words = dict(word.split("=", 1) for word in line.split()[1:])
    config = dict(pair.split("=") for pair in words["config"].split(","))
    threads = int(config["threads"])
"""
FORMULA = "    print(1000 / threads + int(config['rows']), flush=True)\n"


class TuneFamily(harness.KjitCase):
    program = KJIT

    def setUp(self):
        super().setUp()
        self.environment["KJIT_LIBCUDA"] = NOWHERE
        for name in ("softmax.cu", "softmax.yaml"):
            shutil.copy(SOFTMAX / name, self.folder)
        self.softmax = self.folder / "softmax.yaml"

    def runner(self, body=FORMULA):
        return f"exec {sys.executable} {self.write('runner.py', BEGIN + body)}"

    def arguments(self, *more, body=FORMULA):
        return ("tune", "--family", self.softmax, "--runner", self.runner(body), "--arch", "sm_90",
                "--problem", PROBLEM, "--candidates", "6", "--runs", "3", *more)

    def dry_run(self, *more):
        return ("tune", "--family", self.softmax, "--dry-run", "--arch", "sm_90", *more)

    def tune(self, *more, body=FORMULA, exit_code=DONE):
        return self.json(*self.arguments(*more, body=body), exit_code=exit_code)

    def choose(self, problem=PROBLEM):
        return self.json("family", "choose", self.softmax, problem, "--arch", "sm_90")


class Table(TuneFamily):
    def test_tune_family__the_fastest_is_chosen_for_its_class(self):
        before = self.choose()
        self.assertEqual(before["decided_by"], "rules")
        report = self.tune()
        shown = report["classes"][0]
        self.assertEqual((shown["class"], shown["state"], shown["decided_by"]), (CLASS, "done", "table"))
        self.assertIn("threads=256", shown["config"])
        self.assertEqual(self.choose(), {**before, "config": shown["config"], "decided_by": "table"})
        self.assertEqual(self.choose(PROBLEM.replace("4096", "5000"))["decided_by"], "table")
        self.assertEqual(self.choose(PROBLEM.replace("4096", "1024"))["decided_by"], "rules")
        self.assertEqual(self.choose(PROBLEM.replace("fp16", "bf16"))["decided_by"], "rules")

    def test_tune_family__a_changed_kernel_is_not_believed(self):
        self.tune()
        with open(self.folder / "softmax.cu", "a") as source:
            source.write("// faster now\n")
        self.assertEqual(self.choose()["decided_by"], "rules")

    def test_tune_family__a_set_gives_the_candidates(self):
        shown = self.tune("--set", "small")["classes"][0]
        self.assertEqual(shown["candidates"], 3)

    def test_tune_family__problems_are_read_from_a_file(self):
        path = self.write("problems", f"# two classes\n\n{PROBLEM}\n{PROBLEM}\ncolumns=64,row_count=1\n")
        report = self.json("tune", "--family", self.softmax, "--dry-run", "--arch", "sm_90", "--problems", path)
        self.assertEqual([shown["class"] for shown in report["classes"]], [CLASS, "dtype=fp16,columns=1,rows=1"])

    def test_tune_family__runner_is_told_the_launch(self):
        self.tune("--set", "small", body=f"    open({str(self.folder / 'lines')!r}, 'a').write(line)\n" + FORMULA)
        lines = (self.folder / "lines").read_text().splitlines()
        line = next(line for line in lines if "threads=32,rows=4" in line)
        self.assertTrue(line.startswith("time problem=dtype=fp16,row_count=1000,columns=4096 config=dtype=fp16,"))
        self.assertIn(" arch=sm_90 entry=softmax block=32,4,1 cluster=0,0,0 shared=0 grid=250,1,1 cubin=/", line)

    def test_tune_family__choose_by_rules_of_the_family(self):
        with open(self.softmax, "a") as file:
            file.write("choose:\n  - {when: columns <= 1024, config: {threads: 32, rows: \"min(row_count, 4)\"}}\n"
                       "  - {when: sm >= 90, config: {threads: 256}}\n")
        self.assertIn("threads=32,rows=4", self.choose("columns=64,row_count=9")["config"])
        self.assertIn("threads=256,rows=1", self.choose()["config"])
        self.refused("family", "choose", self.softmax, "columns=64,row_count=3", "--arch", "sm_90",
                     naming="is 3: no value of the field", exit_code=FAILED)


class Gemm(TuneFamily):
    """examples/gemm, whose problems give types, layouts and the epilogue."""

    FOLDER = SOFTMAX.parent / "gemm"

    def test_gemm__is_warmed_by_its_manifest(self):
        report = self.json("warm", "--manifest", self.FOLDER / "gemm.manifest", "--jobs", "2")
        self.assertEqual((report["built"], report["failed"]), (3, 0))

    def test_gemm__is_chosen_for_each_architecture(self):
        def chosen(problem, arch):
            return self.json("family", "choose", self.FOLDER / "gemm.yaml", problem, "--arch", arch)["config"]

        self.assertIn("instruction=mma,", chosen("m=4096,n=4096,k=4096", "sm_80"))
        self.assertIn("BN=128,BK=64,stages=6,consumers=2,pingpong=1", chosen("m=4096,n=4096,k=4096", "sm_90a"))
        few = chosen("b_layout=column,epilogue=bias,m=16,n=4096,k=4096", "sm_90a")
        self.assertIn("epilogue=bias,BM=64,BN=16,BK=128,stages=5,consumers=1", few)
        self.assertIn("split_k=2,swap=1", few)
        for m in (1, 17, 64, 65, 128, 129, 1000, 4096, 9999):
            for n in (8, 1000, 8192, 28672):
                for layouts in ("row", "column"):
                    chosen(f"a_layout={layouts},b_layout={layouts},m={m},n={n},k=512", "sm_90a")

    def test_gemm__is_tuned_for_its_class(self):
        body = "    print(100 / int(config['stages']), flush=True)\n"
        self.write("runner.py", BEGIN.replace('    threads = int(config["threads"])\n', "") + body)
        gemm, problem = self.FOLDER / "gemm.yaml", "dtype=fp16,m=2048,n=4096,k=4096"
        shown = self.json("tune", "--family", gemm, "--runner", f"exec {sys.executable} {self.folder}/runner.py",
                          "--problem", problem, "--arch", "sm_80", "--candidates", "3", "--runs", "2")["classes"][0]
        self.assertEqual(shown["state"], "done")
        choice = self.json("family", "choose", gemm, problem, "--arch", "sm_80")
        self.assertEqual(choice["config"], shown["config"])
        self.assertEqual(choice["decided_by"], shown["decided_by"])


class Runners(TuneFamily):
    def first_failure(self, body):
        """Of a runner that does this for one candidate. The others are measured all the same."""
        shown = self.tune(body=f"    if threads == 64:\n        {body}\n        continue\n" + FORMULA)["classes"][0]
        self.assertEqual((shown["state"], shown["failed"]), ("done", 1))
        self.assertIn("threads=256", shown["config"])
        self.assertIn("threads=64", shown["first_failure"])
        return shown["first_failure"]

    def test_runner__error_costs_one_candidate(self):
        self.assertIn("the runner: no memory", self.first_failure("print('error no memory', flush=True)"))

    def test_runner__wrong_result_costs_one_candidate(self):
        self.assertIn("the result is wrong: 3 of 4", self.first_failure("print('wrong 3 of 4', flush=True)"))

    def test_runner__bad_answer_is_quoted(self):
        said = self.first_failure("print('fast', flush=True)")
        self.assertIn('the runner answered "fast": expected microseconds above 0', said)

    def test_runner__crash_costs_one_candidate_and_is_named(self):
        self.assertIn("was ended by signal 11 before it answered", self.first_failure("os.kill(os.getpid(), 11)"))
        self.assertIn("ended with exit code 3 before it answered", self.first_failure("sys.exit(3)"))

    def test_runner__silence_ends_it(self):
        """A busy machine may need longer than a second to start a runner, and then the whole class fails; so the bound
        grows until the class is done."""
        body = "    if threads == 64:\n        time.sleep(600)\n" + FORMULA
        for seconds in (1, 4, 16, 64):
            words = self.arguments("--runner-seconds", seconds, "--json", body=body)
            report = json.loads(self.run_command(self.program, *words, environment=self.environment).stdout)
            shown, said = report["classes"][0], f"did not answer within {seconds} s and was ended"
            if shown["state"] == "done":
                break
            self.assertIn(said, shown["message"])
        self.assertEqual(shown["state"], "done")
        self.assertIn(said, shown["first_failure"])

    def test_runner__that_never_answers_is_the_classs_failure(self):
        shown = self.tune(body="    sys.exit(1)\n", exit_code=FAILED)["classes"][0]
        self.assertEqual(shown["state"], "failed")
        self.assertIn("the runner ended with exit code 1", shown["message"])

    def test_runner__that_does_not_exist_is_said(self):
        report = self.json("tune", "--family", self.softmax, "--runner", "/nonexistent/runner", "--arch", "sm_90",
                           "--problem", PROBLEM, "--candidates", "1", exit_code=FAILED)
        self.assertIn("ended with exit code 127", report["classes"][0]["message"])


class Usage(TuneFamily):
    def test_tune_family__what_is_missing_is_said(self):
        self.refused("tune", "--runner", "x", "--problem", PROBLEM, naming="--runner needs --family")
        self.refused("tune", "--family", self.softmax, "--problem", PROBLEM, naming="--family needs --runner")
        self.refused("tune", "--family", self.softmax, "--runner", "x", naming="--family needs a problem")
        self.refused("tune", "--family", self.softmax, "--runner", "x", "--problem", PROBLEM, naming=NOWHERE,
                     exit_code=NO_GPU)

    def test_tune_family__bad_problem_has_its_place(self):
        def naming(text, name):
            self.refused(*self.dry_run("--problem", text), naming=name)

        naming("column=4,row_count=1",
               'column 1: "column" is no given field and no integer parameter of softmax; did you')
        naming("columns=4", "row_count is missing")
        naming("columns=x,row_count=1", "column 9: expected a whole number")
        naming("columns=1,columns=1", "column 11: expected every name at most once")
        naming("dtype=fp64,columns=1,row_count=1", "column 7: expected a value of dtype")
        path = self.write("problems", f"{PROBLEM}\nm=3\n")
        self.refused(*self.dry_run("--problems", path), naming=f"{path}:2: column 1")

    def test_tune_family__unknown_set_lists_those_there_are(self):
        self.refused(*self.dry_run("--problem", PROBLEM, "--set", "no"), naming="there are small, candidates",
                     exit_code=FAILED)

    def test_family_choose__needs_a_problem(self):
        self.refused("family", "choose", self.softmax, naming="a problem is needed", exit_code=USAGE)
        self.refused("family", "choose", "attention_sm90", PROBLEM, "--arch", "sm_90", naming="kjit's own family",
                     exit_code=FAILED)


if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=KJIT)
