"""The benchmarks without a GPU: problems, lines between round sizes, tables, files, the time that a run may take."""

import argparse
import contextlib
import io
import math
import signal
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import attention_calls
import attention_candidates
import attention_peers
import attention_race
import attention_report
import backward_peers
import fa3_table
import harness
import jit_peers
import serving_peers
import variant_peers
from attention_problems import SETS, Problem, cell, is_cell, neighbours, select, with_neighbours
from attention_report import Report, Row

BENCH = harness.Path(attention_peers.__file__).parent
SQUARE = Problem(2, 8, 8, 1024, 1024, 128, 128)
ONE_QUERY = Problem(8, 64, 8, 1, 8192, 128, 128)


def row(problem, product=800.0, copy=4000.0, rounds=30, reasons=None, empty=0.0021, **tflops):
    """A row by the rates of its peers."""
    times = {name: problem.flops / rate / 1e9 for name, rate in tflops.items()}
    return Row(problem, times, product, copy, rounds, reasons or {}, empty)


def made_up_rows():
    """Some of every set, some peers missing."""
    slow = {"FA3": "ModuleNotFoundError: no module", "Flex": "out of memory"}
    return [
        *(row(problem, kjit=600, FA2=300, cuDNN=480, reasons=slow) for problem in select(["all"], "bf16")[:60]),
        row(cell(128, 4096, False, "fp16"), rounds=7, kjit=650, cuDNN=640),
        row(ONE_QUERY, kjit=3, FA2=2),
        row(Problem(1, 8, 8, 1024, 1024, 64, 64), FA2=100),
    ]


class Backward(unittest.TestCase):
    """bench/backward_peers.py: which of kjit's kernels are compiled before anything is timed."""

    def test_first_calls__are_one_for_each_problem_and_each_of_kjits_promises(self):
        chosen = backward_peers.odd_problems()
        both = backward_peers.first_calls(chosen, list(backward_peers.PEERS))
        self.assertEqual(sorted(map(str, both)), sorted(str((each, bits)) for each in chosen for bits in (False, True)))
        self.assertEqual(backward_peers.first_calls(chosen, ["kjit", "FA3"]), [(each, False) for each in chosen])
        self.assertEqual(backward_peers.first_calls(chosen, ["FA3"]), [])


class Serving(unittest.TestCase):
    """bench/serving_peers.py: the report of a file with one or two kinds of flush."""

    def report(self, flushes):
        lines = [("paged", "8 x 1", peer, us + (9 if flush == "zeros" else 0), 0.5, 1, 4.2, flush)
                 for flush in flushes for peer, us in (("kjit", 100), ("FA3", 120))]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = harness.Path(folder) / "serving_peers.csv"
            serving_peers.write_csv(path, serving_peers.HEAD, lines)
            return serving_peers.table_of(serving_peers.read_rows(path)).splitlines()

    def test_table__is_of_the_one_flush(self):
        title, _, head, _, line = self.report(["reads"])
        self.assertIn("1 problems, L2 flushed by reads, × 1.200 in the geometric mean", title)
        self.assertEqual(head.count("×"), 1)
        self.assertIn("| 100.0 | 120.0 | 5.00 |", line)

    def test_table__has_both_flushes_side_by_side(self):
        *title, _, head, _, line = self.report(["zeros", "reads"])
        self.assertIn("flushed by zeros, × 1.183", " ".join(title))
        self.assertIn("flushed by reads, × 1.200", " ".join(title))
        self.assertIn("| × best | reads: kjit | FA3 | × best |", head)
        self.assertLessEqual(len(head), 120)
        self.assertIn("| 109.0 | 129.0 | 4.59 |", line)
        self.assertTrue(line.endswith("| 1.18 | 100.0 | 120.0 | 1.20 |"), line)


class Variants(unittest.TestCase):
    """bench/variant_peers.py: what a visited block costs beside dense causal attention's."""

    ROWS = [
        variant_peers.Row(64, 4096, "causal, dense", 100, 100, {"kjit": 1.0, "FA3": 1.2}),
        variant_peers.Row(64, 4096, "window", 30, 40, {"kjit": 0.5}),
        variant_peers.Row(128, 4096, "window", 30, 40, {"kjit": 0.5}),
    ]

    def test_per_block__is_beside_causal_of_the_same_size(self):
        found = [variant_peers.per_block(each, self.ROWS) for each in self.ROWS]
        self.assertEqual(found, [1.0, 0.8, None])

    def test_table__has_a_line_for_each_row_and_dashes_for_what_is_missing(self):
        lines = variant_peers.table(self.ROWS).splitlines()
        self.assertEqual(len(lines), 2 + len(self.ROWS))
        self.assertIn("| 1.20 |", lines[2])
        self.assertTrue(lines[3].endswith("| — | — | — | — |"), lines[3])

    def test_csv__comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = harness.Path(folder) / "rows.csv"
            variant_peers.write(path, self.ROWS)
            self.assertEqual(variant_peers.read(path), self.ROWS)

    def test_within__stops_what_takes_too_long(self):
        started = time.monotonic()
        with self.assertRaisesRegex(TimeoutError, "not ready"), variant_peers.within(started + 0.05):
            while time.monotonic() < started + 60:
                pass
        self.assertLess(time.monotonic(), started + 30)

    def test_within__stops_again_what_swallowed_the_first(self):
        with self.assertRaises(TimeoutError), variant_peers.within(time.monotonic() + 0.02):
            with contextlib.suppress(TimeoutError):
                time.sleep(60)
            time.sleep(60)

    def test_within__lets_nothing_begin_when_the_time_is_over(self):
        begun = []
        with self.assertRaises(TimeoutError), variant_peers.within(time.monotonic() - 1):
            begun.append(1)
        self.assertEqual(begun, [])

    def test_within__leaves_no_alarm_behind(self):
        for until in (time.monotonic() + 60, math.inf):
            with variant_peers.within(until):
                pass
            self.assertEqual(signal.getitimer(signal.ITIMER_REAL), (0.0, 0.0))

    def test_prepare__times_the_others_where_flexattention_is_not_ready(self):
        def never(inputs, variant):
            return lambda: time.sleep(60)

        prepared = variant_peers.Prepared([], {}, {})
        inputs = types.SimpleNamespace(head_dim=64, length=4096, heads=2, batch=3)
        makers = {"kjit": lambda inputs, variant: lambda: "out", "Flex": never}
        fakes = {"MAKERS": makers, "check": lambda *_: None, "rows_of": mock.MagicMock(),
                 "count_pairs": lambda *_: (5, 7)}  # fmt: skip
        with mock.patch.dict(sys.modules, {"torch": mock.MagicMock()}), mock.patch.multiple(variant_peers, **fakes):
            variant = variant_peers.VARIANTS[0]
            variant_peers._prepare_variant(inputs, variant, ["Flex", "kjit"], time.monotonic() + 0.05, prepared)
        self.assertEqual(list(prepared.runs), [(variant.name, "kjit")])
        self.assertEqual(list(prepared.reasons), ["Flex, causal, dense, hd64 4096"])
        self.assertEqual([(each.attended, each.visited) for each in prepared.rows], [(30, 42)])


class Candidates(unittest.TestCase):
    def test_decoding__has_candidates_of_three_families_and_one_consumer(self):
        problem = attention_candidates.of_text("decode 2 16 2 1 9000 64 0 bf16 bshd")
        found = {name: list(make(problem)) for name, make in attention_candidates.FAMILIES.items()}
        self.assertEqual([name for name, texts in found.items() if texts], ["decode", "one_part", "sm90"])
        self.assertTrue(all("consumers=1," in text and "packed=8," in text for text in found["sm90"]))

    def test_short_name__leaves_out_what_all_candidates_have(self):
        text = "attention_short_sm90 dtype=bf16,head_dim=64,head_dim_v=64,causal=0,tile_n=80,consumers=1"
        self.assertEqual(attention_candidates.short_name(text), "short_sm90 tile_n=80 consumers=1")

    def test_of_text__names_the_words_that_are_expected(self):
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "10 words are expected: use batch"):
            attention_candidates.of_text("decode 2 16")


class Race(unittest.TestCase):
    def test_draw__is_the_seeds_and_within_bounds(self):
        drawn = attention_race.draw(7, 400)
        self.assertEqual(drawn[:50], attention_race.draw(7, 50))
        self.assertNotEqual(drawn[:50], attention_race.draw(8, 50))
        self.assertEqual(len(set(drawn)), 400)
        for problem in drawn:
            self.assertTrue(attention_race.is_small_enough(problem), problem)
            self.assertEqual((problem.heads_q % problem.heads_kv, problem.head_dim % 8), (0, 0))
            self.assertLessEqual((problem.batch, problem.heads_q, problem.head_dim), (1024, 128, 256))
            self.assertFalse(problem.causal and problem.seq_q > problem.seq_kv, problem)

    def test_draw__covers_what_is_used(self):
        drawn = attention_race.draw(1, 400)
        uses = {problem.use for problem in drawn}
        self.assertEqual(uses, {"self", "cross", "decode", "chunk", "short"})
        self.assertEqual({problem.layout for problem in drawn}, {"bshd", "bhsd"})
        self.assertEqual({problem.dtype for problem in drawn}, {"bf16", "fp16"})
        self.assertTrue(any(problem.heads_kv < problem.heads_q for problem in drawn))
        self.assertGreater(sum(problem.seq_kv >= 16384 for problem in drawn), 20)
        self.assertGreater(len({problem.head_dim for problem in drawn}), 15)

    def test_dry_run__lists_problems_with_their_configs(self):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            code = attention_race.list_problems(attention_race.parse(["--count", "40", "--seed", "3", "--card", "H20"]))
        lines = told.getvalue().splitlines()
        self.assertEqual((code, len(lines)), (0, 40))
        for line in lines:
            self.assertRegex(line, r"^hd\d+ (full|causal) .*: attention_((decode|serving|short)_)?sm90 dtype=")

    def test_result__is_shares_and_the_worst_first(self):
        problems = attention_race.draw(2, 25)
        rows = [row(problem, kjit=100 + index, FA2=110) for index, problem in enumerate(problems[:22])]
        rows.append(row(problems[22], kjit=100))
        rows.append(row(problems[23], FA2=100, reasons={"kjit": "WRONG: error 1"}))
        rows.append(row(problems[24], kjit=80, FA2=100))
        result = attention_race.Result(rows)
        lines = list(result.lines())
        self.assertRegex(lines[0], r"^23 raced: won 52.2%, geometric mean 0.99\d, worst 0.80, below 0.9: 1$")
        self.assertEqual(lines[1], "1 that no peer computes, 1 that kjit does not, 1 wrong")
        table = result.worst({problems[24]: "some config"}).splitlines()
        self.assertEqual(len(table), 2 + attention_race.WORST)
        self.assertIn("some config", table[2])


class Problems(unittest.TestCase):
    def test_flops__count_the_keys_that_are_seen(self):
        self.assertEqual(SQUARE.flops, 4 * 2 * 8 * 1024 * 1024 * 128)
        self.assertEqual(Problem(2, 8, 8, 1024, 1024, 128, 128, True).flops, SQUARE.flops / 2)
        self.assertEqual(Problem(1, 1, 1, 10, 30, 64, 64, True).flops, 4 * 10 * 25 * 64)
        self.assertEqual(Problem(1, 1, 1, 30, 10, 64, 64, True).flops, 4 * 30 * 5 * 64)
        self.assertEqual(Problem(1, 1, 1, 8, 8, 192, 128).flops, 2 * 8 * 8 * (192 + 128))

    def test_bytes__are_of_the_heads_that_there_are(self):
        self.assertEqual(ONE_QUERY.bytes_moved, 2 * 8 * (8 * 8192 * 256 + 64 * 256))

    def test_name__says_what_differs(self):
        self.assertEqual(str(SQUARE), "hd128 full 2x8x1024")
        self.assertEqual(str(ONE_QUERY), "hd128 full 8x64/8x1/8192")
        self.assertEqual(str(Problem(1, 4, 4, 64, 64, 192, 128, True, "fp16")), "hd192/128 causal 1x4x64 fp16")

    def test_cells__are_36_and_some_of_the_other_type(self):
        problems = select(["cells"], "bf16")
        self.assertEqual(sum(problem.dtype == "bf16" for problem in problems), 36)
        self.assertEqual({problem.dtype for problem in problems[36:]}, {"fp16"})
        self.assertTrue(all(map(is_cell, problems)))
        for problem in problems:
            self.assertEqual((problem.batch * problem.seq_q, problem.heads_q * problem.head_dim), (16384, 2048))

    def test_odd__holds_every_size_that_is_asked_for(self):
        problems = select(["odd"], "bf16")
        for size in ((40, 40), (72, 72), (80, 80), (96, 96), (112, 112), (160, 160), (192, 192), (192, 128)):
            found = {each.causal for each in problems if (each.head_dim, each.head_dim_v, each.seq_q) == (*size, 4096)}
            self.assertEqual(found, {False, True}, size)
        self.assertLess({1000, 4097, 8190}, {problem.seq_q for problem in problems})

    def test_small_and_decode__hold_what_is_asked_for(self):
        small, decode = select(["small"], "bf16"), select(["decode"], "fp16")
        self.assertEqual({problem.batch for problem in small}, {1})
        self.assertEqual({(problem.heads_q, problem.heads_kv) for problem in small}, {(8, 8), (64, 8), (32, 1)})
        self.assertEqual({problem.seq_q for problem in decode}, {1, 4, 16, 64, 128})
        self.assertEqual({each.seq_kv for each in decode if each.is_decoding}, {8192, 16384, 32768, 65536})

    def test_all__is_every_set_with_each_problem_once(self):
        problems = select(["all"], "bf16")
        self.assertEqual(len(problems), len(set(problems)))
        self.assertEqual(set(problems), {problem for name in SETS for problem in SETS[name]("bf16")})
        self.assertEqual(select(["cells", "all", "odd"], "bf16"), problems)

    def test_sizes__are_what_the_library_takes(self):
        for problem in select(["all"], "bf16"):
            self.assertEqual(
                (problem.head_dim % 8, problem.head_dim_v % 8, problem.heads_q % problem.heads_kv), (0, 0, 0)
            )
            self.assertLessEqual(problem.head_dim, 256)


class Lines(unittest.TestCase):
    def test_neighbours__of_a_head_size(self):
        low, high, part = neighbours(cell(80, 4096, True))
        self.assertEqual((low, high, part), (cell(64, 4096, True), cell(128, 4096, True), 0.25))
        self.assertEqual(neighbours(cell(40, 4096, False))[:2], (cell(32, 4096, False), cell(64, 4096, False)))

    def test_neighbours__of_two_head_sizes_are_of_their_mean(self):
        low, high, part = neighbours(cell(192, 4096, False, head_dim_v=128))
        self.assertEqual((low.head_dim, high.head_dim, part), (128, 256, 0.25))

    def test_neighbours__of_a_length(self):
        low, high, part = neighbours(cell(128, 4097, False))
        self.assertEqual((low.seq_q, high.seq_q, part), (4096, 8192, 1 / 4096))

    def test_neighbours__are_nothing_for_other_problems(self):
        for problem in (SQUARE, ONE_QUERY, cell(128, 4096, False), cell(80, 1000, False)):
            self.assertIsNone(neighbours(problem), problem)

    def test_neighbours__are_in_the_set_with_what_stands_between_them(self):
        problems = with_neighbours([cell(80, 4096, False)])
        self.assertEqual(problems, [cell(64, 4096, False), cell(128, 4096, False), cell(80, 4096, False)])
        odd = set(select(["odd"], "bf16"))
        for problem in odd:
            self.assertLessEqual(set((neighbours(problem) or ())[:2]), odd)

    def test_line__is_straight_between_the_rates(self):
        rows = [row(cell(size, 4096, False), kjit=rate) for size, rate in ((64, 500), (128, 700), (80, 440))]
        report = Report(rows, ["kjit"])
        self.assertIsNone(report.of_line(rows[0]))
        self.assertAlmostEqual(report.of_line(rows[2]), 440 / 550)
        self.assertIn("Odd sizes beside the line: 0 of 1 problems at 90 % or more, least 80 %", report.summary())
        self.assertIsNone(Report(rows[1:], ["kjit"]).of_line(rows[2]))


class Rows(unittest.TestCase):
    def test_ratio__is_to_the_best_peer(self):
        found = row(SQUARE, kjit=600, FA2=300, cuDNN=500)
        self.assertEqual((found.best_peer, round(found.ratio, 6)), ("cuDNN", 1.2))
        self.assertAlmostEqual(found.of_product, 0.75)
        self.assertIsNone(found.of_copy)

    def test_ratio__is_none_where_one_side_is_missing(self):
        self.assertIsNone(row(SQUARE, kjit=600).ratio)
        alone = row(SQUARE, FA2=300)
        self.assertEqual((alone.ratio, alone.of_product, alone.best_peer), (None, None, "FA2"))

    def test_copy__is_beside_one_query(self):
        milliseconds = ONE_QUERY.bytes_moved / 4000e6  # at the copy's own speed
        found = Row(ONE_QUERY, {"kjit": 2 * milliseconds}, 800, 4000, 9)
        self.assertAlmostEqual(found.of_copy, 0.5)

    def test_microseconds__are_of_peers_that_were_measured(self):
        found = Row(SQUARE, {"kjit": 0.0125}, 800, 4000, 9)
        self.assertEqual((found.microseconds("kjit"), found.microseconds("FA2")), (12.5, None))
        self.assertIsNone(found.microseconds(found.best_peer))


class Estimates(unittest.TestCase):
    def estimate(self, found, *others):
        return Report([found, *others], []).fa3_estimate(found)

    def test_fa3__is_estimated_from_cudnn_where_it_is_missing(self):
        problem = cell(128, 4096, False)
        found = row(problem, kjit=700, cuDNN=610)
        self.assertAlmostEqual(self.estimate(found), 721)
        self.assertAlmostEqual(Report([found], []).over_fa3_estimate(found), 700 / 721)
        self.assertIsNone(self.estimate(row(problem, kjit=700)))
        self.assertIsNone(self.estimate(row(SQUARE, kjit=700, cuDNN=610)))
        self.assertIsNone(fa3_table.ratio_to_cudnn(cell(128, 4096, False, "fp16")))

    def test_fa3__is_not_estimated_in_a_run_that_measured_any_build_of_it(self):
        found = row(cell(128, 4096, False), kjit=700, cuDNN=610)
        for name in ("FA3", "FA3 other"):
            self.assertIsNone(self.estimate(found, row(SQUARE, kjit=700, **{name: 715})), name)
            here = row(found.problem, kjit=700, cuDNN=610, **{name: 715})
            self.assertIsNone(self.estimate(here), name)
            self.assertNotIn("FA3~", Report([here, found], ["kjit", "cuDNN", name]).text("An H200."))
        self.assertIsNotNone(self.estimate(found, row(SQUARE, FA2=3)))

    def test_fa3__table_has_every_cell(self):
        for problem in SETS["cells"]("bf16")[:36]:
            self.assertTrue(0.8 < fa3_table.ratio_to_cudnn(problem) < 1.4, problem)


class Reports(harness.TemporaryFolder):
    def test_table__has_a_line_for_each_problem_and_columns_that_say_something(self):
        report = Report(made_up_rows(), ["kjit", "FA2", "cuDNN", "FA3"])
        sections = report.sections()
        cells = report.table(sections["cells"]).splitlines()
        decode = report.table(sections["decode"], short=True).splitlines()
        self.assertIn("| kjit | FA2 | cuDNN | FA3~ | x best peer | kjit / FA3~ | of a product |", cells[0])
        times = "kjit µs | best peer µs"
        self.assertTrue(decode[0].endswith(f"| {times} | x best peer | of a product | of a copy |"))
        self.assertNotIn(times, cells[0])
        self.assertEqual({line.count("|") for line in cells}, {cells[0].count("|")})
        self.assertIn("| hd64 full 32x32x512 | 600 | 300 | 480 | 409 | 1.25 (cuDNN) | 1.47 | 75 % |", cells)

    def test_table__of_short_problems_holds_microseconds(self):
        rows = [Row(ONE_QUERY, {"kjit": 0.05, "FA2": 0.2, "cuDNN": 0.1}, 800, 4000, 9)]
        (line,) = Report(rows, ["kjit"]).table(rows, short=True).splitlines()[2:]
        self.assertIn("| 50.0 | 100.0 | 2.00 (cuDNN) |", line)
        alone = [Row(ONE_QUERY, {"kjit": 0.05}, 800, 4000, 9)]
        self.assertNotIn("best peer", Report(alone, ["kjit"]).table(alone, short=True))

    def test_text__has_one_table_for_each_set(self):
        rows = [row(problem, kjit=600, FA2=300) for problem in select(["all"], "bf16")]
        head, *sections = Report(rows, ["kjit", "FA2"]).text("An H200.").split("\n## ")
        self.assertEqual([part.split("\n")[0] for part in sections], list(attention_report.TITLES.values()))
        self.assertEqual([part.count("| --- |") for part in [head, *sections]], [0, 1, 1, 1, 1])
        self.assertEqual(sum(part.count("\n| hd") for part in sections), len(rows))
        for part in sections:
            self.assertIn("kjit over the best peer: geometric mean 2.000", part)

    def test_text__of_one_set_says_once_where_it_stands(self):
        text = Report([row(SQUARE, kjit=600, FA2=300)], ["kjit", "FA2"]).text("An H200.")
        self.assertEqual(text.count("kjit over the best peer"), 1)

    def test_text__says_what_an_empty_launch_takes_where_problems_are_short(self):
        rows = [row(problem, kjit=6, FA2=3) for problem in select(["all"], "bf16")]
        sections = Report(rows, ["kjit", "FA2"]).text("An H200.").split("\n## ")[1:]
        said = ["An empty launch takes 2.1 µs here, included." in part for part in sections]
        self.assertEqual(said, [False, False, True, True])
        unknown = Report([row(ONE_QUERY, empty=None, kjit=3)], ["kjit"])
        self.assertNotIn("empty launch", unknown.text("An H200."))

    def test_text__says_what_is_estimated_and_what_was_short(self):
        text = Report(made_up_rows(), ["kjit", "FA2", "cuDNN"]).text(
            "An H200.", attention_peers.notes(made_up_rows(), 4, 30, 12)
        )
        self.assertIn("kjit over the best peer: geometric mean 1.2", text)
        self.assertIn(fa3_table.WORDS, text)
        self.assertIn("The time was short: 30 rounds of 30, at least 7.", text)
        self.assertIn("4 problems were left out: the time was up.", text)
        self.assertIn("The GPU reached 12 calls before they were enqueued", text)

    def test_text__of_nothing_says_so(self):
        self.assertIn("kjit computed nothing.", Report([row(SQUARE, FA2=3)], ["kjit"]).text("An H200."))

    def test_csv__is_read_as_it_was_written(self):
        path, rows = self.folder / "a.csv", made_up_rows()
        attention_report.write(path, rows)
        again = attention_report.read(path)
        self.assertEqual([each.problem for each in again], [each.problem for each in rows])
        self.assertEqual([each.reasons for each in again], [each.reasons for each in rows])
        for one, other in zip(rows, again):
            self.assertEqual((one.product_tflops, one.rounds), (other.product_tflops, other.rounds))
            self.assertEqual(one.empty_milliseconds, other.empty_milliseconds)
            for name in one.milliseconds:
                self.assertAlmostEqual(one.milliseconds[name], other.milliseconds[name], delta=1e-5)

    def test_csv__without_an_empty_launch_is_read(self):
        path = self.folder / "a.csv"
        attention_report.write(path, [row(SQUARE, empty=None, kjit=3)])
        self.assertIsNone(attention_report.read(path)[0].empty_milliseconds)
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{line.rsplit(',', 1)[0]}\n" for line in lines))  # as it was before there was one
        self.assertIsNone(attention_report.read(path)[0].empty_milliseconds)

    def test_command__tells_a_file_with_builds_beside_their_peer(self):
        path = self.folder / "a.csv"
        attention_report.write(path, [row(SQUARE, **{"FlashInfer": 1, "FA3 other": 4, "kjit": 3, "FA3": 2, "FA2": 1})])
        result = self.run_command(sys.executable, BENCH / "attention_peers.py", "--from", path, "--out", self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| kjit | FA2 | FA3 | FA3 other | FlashInfer | x best peer |", result.stdout)
        self.assertIn("0.75 (FA3 other)", result.stdout)

    def test_command__names_a_set_that_is_none(self):
        result = self.run_command(sys.executable, BENCH / "attention_peers.py", "--set", "cells,evn")
        self.assertEqual(result.returncode, 2)
        self.assertIn("evn: there are cells, odd, small, decode, all", result.stderr)


class FakeFlash(types.ModuleType):
    """A module of attention whose calls give their options."""

    def __init__(self, **more):
        super().__init__("flash_attn_interface")
        self.flash_attn_func = lambda q, k, v, **options: options
        vars(self).update(more)


class Builds(unittest.TestCase):
    INPUTS = types.SimpleNamespace(q=0, k=0, v=0, problem=types.SimpleNamespace(causal=True))

    def find(self, module, *names):
        """None in the place of a module: it cannot be imported."""
        patch = mock.patch.dict(sys.modules, {"flash_attn_interface": module, "flash_attn": None})
        patch.start()
        self.addCleanup(patch.stop)
        return attention_calls.find(names)

    def test_builds__are_a_peer_each(self):
        peers = self.find(FakeFlash(impls=lambda: ["wheel", "cu13"]), "kjit", "FA3", "cuDNN")
        self.assertEqual(list(peers), ["kjit", "FA3", "FA3 cu13", "cuDNN"])
        found = {name: peers[name](self.INPUTS)() for name in ("FA3", "FA3 cu13")}
        expected = {"FA3": {"causal": True, "impl": "wheel"}, "FA3 cu13": {"causal": True, "impl": "cu13"}}
        self.assertEqual(found, expected)

    def test_module__without_builds_is_one_peer(self):
        for module in (FakeFlash(), FakeFlash(impls=list)):
            peers = self.find(module, "FA3")
            self.assertEqual(list(peers), ["FA3"])
            self.assertEqual(peers["FA3"](self.INPUTS)(), {"causal": True})

    def test_module__that_is_missing_says_so_when_the_peer_is_made(self):
        peers = self.find(None, *attention_calls.PEERS)
        self.assertEqual(list(peers), list(attention_calls.PEERS))
        with self.assertRaises(ModuleNotFoundError):
            peers["FA3"](self.INPUTS)


class FakeClock:
    """Every call takes as many milliseconds as its name is long."""

    def rounds(self, runs, count, until, seldom):
        return {name: [float(len(name))] * count for name in {**runs, **seldom}}


class Measures(unittest.TestCase):
    def setUp(self):
        limits = {f"make_{name}": lambda: None for name in ("product", "copy", "empty")}
        medians = {"medians": lambda times: {name: each[0] for name, each in times.items()}}
        clock = types.SimpleNamespace(Clock=FakeClock, PRODUCT_SIDE=1000, COPY_BYTES=10**9, **limits, **medians)
        inputs = types.SimpleNamespace(Inputs=lambda problem: problem)
        flash = FakeFlash(impls=lambda: ["wheel", "cu13"])
        modules = {"gpu_clock": clock, "attention_inputs": inputs, "flash_attn_interface": flash}
        for patch in (
            mock.patch.dict(sys.modules, modules),
            mock.patch.object(attention_peers, "prepare", lambda inputs, peers: (dict.fromkeys(peers), {"x": "why"})),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def test_row__holds_every_build_and_what_limits_the_card(self):
        found = attention_peers.Bench(["kjit", "FA3"], 7).measure(SQUARE, float("inf"))
        self.assertEqual(found.milliseconds, {"kjit": 4.0, "FA3": 3.0, "FA3 cu13": 8.0})
        self.assertEqual((found.empty_milliseconds, found.rounds, found.reasons), (5.0, 7, {"x": "why"}))
        self.assertAlmostEqual(found.product_tflops, 2e9 / 7 / 1e9)
        self.assertAlmostEqual(found.copy_gb_per_s, 2e9 / 4 / 1e6)


class SlowBench:
    """Measures a problem in a second of a clock that nobody waits for."""

    def __init__(self):
        self.now, self.asked = 100.0, []

    def measure(self, problem, until):
        self.asked.append(until - self.now)
        self.now += 1
        return row(problem, kjit=1)


class Time(unittest.TestCase):
    def run_for(self, seconds, count):
        bench = SlowBench()
        problems = select(["cells"], "bf16")[:count]
        with mock.patch("time.monotonic", lambda: bench.now), contextlib.redirect_stderr(io.StringIO()):
            rows, left_out = attention_peers.run(bench, problems, seconds, bench.now)
        return bench, rows, left_out

    def test_shares__of_what_is_left_are_equal(self):
        bench, rows, left_out = self.run_for(20, 5)
        self.assertEqual((len(rows), left_out, bench.asked), (5, 0, [4.0, 4.75, 6.0, 8.5, 16.0]))

    def test_problems__behind_the_end_are_left_out(self):
        _, rows, left_out = self.run_for(2.5, 10)
        self.assertEqual((len(rows), left_out), (3, 7))

    def test_notes__are_none_where_all_was_done(self):
        self.assertEqual(attention_peers.notes([row(SQUARE, kjit=1)], 0, 30, 0), [])


JIT_FOUND = {
    "kjit": {"cold_ms": 621.1, "disk_ms": 8.77, "resident_us": 7.23, "bytes_on_disk": 109481.0},
    "CuPy RawModule": {"cold_ms": 534.9, "disk_ms": 11.68, "resident_us": None, "bytes_on_disk": 527996.0},
    "Triton": dict.fromkeys(jit_peers.KINDS),
}


class JitPeers(harness.TemporaryFolder):
    def test_table__says_who_only_compiles_and_what_is_missing(self):
        lines = jit_peers.table(JIT_FOUND).splitlines()
        self.assertEqual(lines[2], "| kjit | 621.1 | 8.77 | 7.23 | 107 |")
        self.assertEqual(lines[3], "| CuPy RawModule (compile and load) | 534.9 | 11.68 | — | 516 |")
        self.assertEqual(lines[4], "| Triton | — | — | — | — |")

    def test_csv__is_read_as_it_was_written(self):
        path = self.folder / "j.csv"
        jit_peers.write(path, JIT_FOUND, {"Triton": "not here"})
        self.assertEqual(jit_peers.read(path), JIT_FOUND)

    def test_medians__are_of_each_kind(self):
        runs = iter([10.0, 2.0, 30.0, 4.0])

        def spawn(name, caches, limit):
            (caches / "entry").write_bytes(b"x" * 100)
            return {"first_ms": next(runs), "resident_us": 5.0}, ""

        with mock.patch.object(jit_peers, "spawn", spawn), contextlib.redirect_stderr(io.StringIO()):
            found, reasons = jit_peers.measure(["kjit"], 2, float("inf"))
        expected = {"cold_ms": 20.0, "disk_ms": 3.0, "resident_us": 5.0, "bytes_on_disk": 100.0}
        self.assertEqual((found, reasons), ({"kjit": expected}, {}))

    def test_tiered__cold_run_without_a_first_tier_is_no_measurement(self):
        cold = {"first_ms": 900.0, "resident_us": 5.0}
        with mock.patch.object(jit_peers, "spawn", lambda *arguments: (cold, "")):
            found, reasons = jit_peers.measure([jit_peers.TIERED], 1, float("inf"))
        self.assertIsNone(found[jit_peers.TIERED]["cold_ms"])
        self.assertEqual(reasons, {jit_peers.TIERED: "the first call was not served by the first tier"})

    def test_peer__that_fails_is_left_with_its_reason(self):
        with mock.patch.object(jit_peers, "spawn", lambda *arguments: (None, "no such module")):
            found, reasons = jit_peers.measure(["Triton"], 3, float("inf"))
        self.assertEqual((found["Triton"]["cold_ms"], reasons), (None, {"Triton": "no such module"}))


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
