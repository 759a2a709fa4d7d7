#!/usr/bin/env python3
"""The staircase: the 7 progression configs and candidates for the best one beside PyTorch's flash backend.

In one run, on the same tensors, with the same events, L2 emptied alike, in turns; medians. TFLOP/s is
4 * B * H * S^2 * D / time. Each output is checked beside float64 on sampled rows. Exit code 3 where there is no PyTorch
or no GPU, 1 where an output is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_calls import sdpa
from attention_problems import DTYPES, Problem
from tables import find_package, write_csv

if TYPE_CHECKING:
    from attention_inputs import Inputs
    from gpu_clock import Run

STEPS = [
    "1 base",
    "2 swizzled",
    "3 eager K/V loads",
    "4 fragments interleaved",
    "5 double-buffered fragments",
    "6 optimized softmax",
    "7 Q kept in registers",
]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="16,4096,16,128", help="B,S,H,D (%(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--config", action="append", default=[], help="a candidate's short form; may be given again")
    parser.add_argument("--file", type=Path, help="candidates, a short form a line")
    parser.add_argument("--set", default="prebuilt", help="a set of candidates, 'none' for none (%(default)s)")
    parser.add_argument("--also", default="", help="further backends of PyTorch: cudnn,efficient")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--top", type=int, default=10, help="candidates in the table (%(default)s); all are in the CSV")
    parser.add_argument("--csv", type=Path, help="file for every number")
    parser.add_argument("--keep-l2", action="store_true")
    return parser.parse_args()


@dataclasses.dataclass
class Variant:
    """Something that is timed; `text` is its config's short form, "" for PyTorch's own."""

    name: str
    text: str
    run: Run
    error: float = float("nan")
    right: bool = True
    times: list[float] = dataclasses.field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        return statistics.median(self.times)


def named_configs(options: argparse.Namespace, head_dim: int) -> list[tuple[str, Any]]:
    """The steps for this head size and type, then the candidates."""
    import kjit

    dtype = kjit.DType.from_string(options.dtype)
    steps = [config for config in kjit.config_set("progression") if config.d_head == head_dim]
    found = [(name, dataclasses.replace(config, dtype=dtype)) for name, config in zip(STEPS, steps)]
    texts = list(options.config)
    if options.file:
        lines = options.file.read_text(encoding="utf-8").splitlines()
        texts += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    candidates = [kjit.FlashForwardKernelConfig.parse(text) for text in texts]
    if options.set != "none":
        candidates += kjit.config_set(options.set)
    return found + [("candidate", each) for each in candidates if each.d_head == head_dim and each.dtype == dtype]


def make_variants(inputs: Inputs, options: argparse.Namespace) -> list[Variant]:
    """PyTorch's flash backend first, then kjit's configs, all compiled; one output for all of these."""
    import kjit

    named = named_configs(options, inputs.problem.head_dim)
    failed = kjit.warm([config for _, config in named])["errors"]
    if failed:
        raise SystemExit(f"staircase: {next(iter(failed.values()))}")
    variants = [Variant("PyTorch flash (FA2)", "", sdpa("FLASH_ATTENTION")(inputs))]
    out = inputs.empty_out()
    for name, config in named:
        launch = kjit.plan(inputs.q, inputs.k, inputs.v, out=out, config=config).run

        def run(launch: Any = launch) -> Any:
            launch()
            return out

        variants.append(Variant(name, str(config), run))
    for name in filter(None, options.also.split(",")):
        variants.append(Variant(f"PyTorch {name}", "", sdpa(f"{name.upper()}_ATTENTION")(inputs)))
    return variants


def check(inputs: Inputs, variants: list[Variant]) -> None:
    """One after another: they share an output, which each finds as not-a-number."""
    for variant in variants:
        if variant.text:
            variant.run().fill_(float("nan"))
        variant.error = inputs.error(variant.run())
        variant.right = inputs.is_right(variant.error)


def print_table(variants: list[Variant], steps: int, options: argparse.Namespace, flops: float) -> None:
    def speed(variant: Variant) -> float:
        return flops / variant.milliseconds / 1e9

    reference, before = speed(variants[0]), 0.0
    print(f"{'TFLOP/s':>8} {'median ms':>10} {'x FA2':>7} {'step':>7}  what")
    rest = sorted(variants[1 + steps :], key=speed, reverse=True)
    for index, variant in enumerate(variants[: 1 + steps] + rest[: options.top]):
        is_step = 1 <= index <= steps
        gain = f"{speed(variant) / before:7.3f}" if is_step and before else " " * 7
        before = speed(variant) if is_step else before
        wrong = "" if variant.right else "  WRONG"
        figures = f"{speed(variant):8.1f} {variant.milliseconds:10.4f} {speed(variant) / reference:7.3f} {gain}"
        print(f"{figures}  {variant.name}{wrong}  {variant.text}")
    if options.csv:
        head = ["name", "config", "tflops", "median_ms", "least_ms", "most_ms", "ratio_to_fa2", "error", "right"]
        rows = []
        for v in variants:
            spread = (v.milliseconds, min(v.times), max(v.times))
            rows.append([v.name, v.text, speed(v), *spread, speed(v) / reference, v.error, v.right])
        write_csv(options.csv, head, rows)
    best = max((variant for variant in variants if variant.text), key=speed)
    print(f"best: {speed(best) / reference:.3f} x FA2  {best.text}")


def main() -> int:
    options = read_options()
    find_package()
    try:
        import torch
    except ImportError as missing:
        print(f"staircase: skipped: {missing}", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("staircase: skipped: PyTorch sees no GPU", file=sys.stderr)
        return 3
    from attention_inputs import Inputs
    from gpu_clock import Clock

    batch, seq, heads, head_dim = (int(part) for part in options.shape.split(","))
    inputs = Inputs(Problem(batch, heads, heads, seq, seq, head_dim, head_dim, False, options.dtype))
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {inputs.problem}")
    variants = make_variants(inputs, options)
    check(inputs, variants)
    runs = {str(index): variant.run for index, variant in enumerate(variants)}
    for index, times in Clock(not options.keep_l2).rounds(runs, options.rounds, warm_up=3).items():
        variants[int(index)].times = times
    steps = sum(variant.name in STEPS for variant in variants)
    print_table(variants, steps, options, inputs.problem.flops)
    return 0 if all(variant.right for variant in variants) else 1


if __name__ == "__main__":
    sys.exit(main())
