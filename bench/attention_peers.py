#!/usr/bin/env python3
"""Times attention forward of kjit beside its peers, interleaved in one run, and checks every result.

Sets: `cells`, the papers' grid (16k tokens, heads * head_dim = 2048; head sizes 64, 128, 256; 512 to 16k; both masks;
some of it in the other type); `odd`, other head sizes and lengths and the round ones beside them; `small`, small grids
and grouped heads; `decode`, few queries against many keys; `all`.

Before anything is timed each peer's output is checked beside float64 on sampled rows; a peer that is wrong is not
timed. Each round times every peer once in a new random order, the L2 cache flushed before each; the median of the
rounds counts. It is the GPU's time alone: before each call the GPU is kept busy until the host has enqueued it, however
long that takes. FLOPs are 2 * batch * heads * seq_q * (keys seen in the mean) * (head_dim + head_dim_v). Every fourth
round also times a matrix product of 8192^3 and a copy of 1 GiB, the card's limits, and an empty launch, the least that
can be measured. Where time is short there are fewer rounds, then fewer problems; the table says so.

Where flash_attn_interface has impls(), each build that it names is a peer: FA3, and "FA3 BUILD" for the others.

Writes attention_peers.csv, .md and .png and attention_SET.png into DIR (by default here); --from makes
them again of a CSV file, without a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Optional

import attention_report
from attention_calls import PEERS, find, prepare
from attention_problems import DTYPES, SETS, Problem, select
from attention_report import Report, Row, is_of
from tables import find_package, words


class Bench:
    """The peers on this machine's GPU."""

    def __init__(self, names: list[str], rounds: int) -> None:
        import gpu_clock

        self.peers, self.rounds = find(names), rounds
        self.gpu_clock, self.clock = gpu_clock, gpu_clock.Clock()
        self.limits = {
            "product": gpu_clock.make_product(),
            "copy": gpu_clock.make_copy(),
            "empty": gpu_clock.make_empty(),
        }

    def measure(self, problem: Problem, until: float) -> Row:
        from attention_inputs import Inputs

        runs, reasons = prepare(Inputs(problem), self.peers)
        times = self.clock.rounds(runs, self.rounds, until=until, seldom=self.limits)
        found = self.gpu_clock.medians(times)
        product, copy, empty = (found.pop(limit) for limit in self.limits)
        rounds = max((len(times[name]) for name in runs), default=0)
        flops, moved = 2 * self.gpu_clock.PRODUCT_SIDE**3, 2 * self.gpu_clock.COPY_BYTES
        return Row(problem, found, flops / product / 1e9, moved / copy / 1e6, rounds, reasons, empty)


def run(bench: Any, problems: list[Problem], seconds: float, started: float) -> tuple[list[Row], int]:
    """What could be measured in this time, each problem with an equal share of what is left; and how many could not."""
    rows: list[Row] = []
    end = started + seconds
    for index, problem in enumerate(problems):
        now, left = time.monotonic(), len(problems) - index
        if now > end:
            return rows, left
        row = bench.measure(problem, now + (end - now) / left)
        rows.append(row)
        shown = ", ".join(f"{name} {row.rate(name):.0f}" for name in row.milliseconds)
        print(f"{time.monotonic() - started:5.0f} s  {problem}: {shown}", file=sys.stderr, flush=True)
    return rows, 0


def notes(rows: list[Row], left_out: int, rounds: int, late: int) -> list[str]:
    """What the time was too short for, and how many calls the GPU did not have to wait for."""
    made = [row.rounds for row in rows]
    found = []
    if made and min(made) < rounds:
        found.append(f"The time was short: {statistics.median(made):.0f} rounds of {rounds}, at least {min(made)}.")
    if left_out:
        found.append(f"{left_out} problems were left out: the time was up.")
    if late:
        found.append(f"The GPU reached {late} calls before they were enqueued: those times hold host time.")
    return found


def conditions(arguments: argparse.Namespace) -> str:
    import torch

    import kjit

    return (
        f"{torch.cuda.get_device_name()}, {arguments.dtype}, randn; PyTorch {torch.__version__}, CUDA "
        f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, kjit {kjit.__version__}. TFLOP/s, medians of "
        f"interleaved rounds, L2 flushed, without host time. `bench/attention_peers.py {' '.join(sys.argv[1:])}`"
    )


def finish(arguments: argparse.Namespace, rows: list[Row], names: list[str], head: str, machine: str) -> None:
    import attention_plots

    report = Report(rows, names)
    text = report.text(head, arguments.notes)
    print(text)
    reasons = {f"{name}: {reason}" for row in rows for name, reason in row.reasons.items()}
    for reason in sorted(reasons):
        print(f"not measured  {reason}", file=sys.stderr)
    (arguments.out / "attention_peers.md").write_text(text, encoding="utf-8")
    try:
        attention_plots.save(report, arguments.out, machine)
    except ImportError as missing:
        print(f"attention_peers.py: no plots: {missing}", file=sys.stderr)


def parse(given: Optional[list[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ",".join([*SETS, "all"])
    parser.add_argument("--set", type=words([*SETS, "all"]), default=["cells", "odd"], help=f"{sets} (cells,odd)")
    parser.add_argument("--seconds", type=float, default=220, help="what the whole run may take, about (220)")
    parser.add_argument("--rounds", type=int, default=30, help="at most, for each problem (30)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    parser.add_argument("--from", dest="source", type=Path, metavar="CSV", help="results to tell again")
    parser.set_defaults(notes=[])
    return parser.parse_args(given)


def tell_again(arguments: argparse.Namespace) -> int:
    rows = attention_report.read(arguments.source)
    measured = {name for row in rows for name in (*row.milliseconds, *row.reasons)}
    names = [name for peer in PEERS for name in sorted(measured) if is_of(peer, name)]
    finish(arguments, rows, names, f"From {arguments.source.name}.", "from a file")
    return 0


def main() -> int:
    started, arguments = time.monotonic(), parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.source:
        return tell_again(arguments)
    find_package()
    import torch

    if not torch.cuda.is_available():
        print("attention_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    bench = Bench(arguments.peers, arguments.rounds)
    rows, left_out = run(bench, select(arguments.set, arguments.dtype), arguments.seconds, started)
    attention_report.write(arguments.out / "attention_peers.csv", rows)
    arguments.notes = notes(rows, left_out, arguments.rounds, bench.clock.late)
    finish(arguments, rows, list(bench.peers), conditions(arguments), torch.cuda.get_device_name())
    wrong = any("WRONG" in row.reasons.get("kjit", "") for row in rows)
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
