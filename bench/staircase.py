#!/usr/bin/env python3
"""The staircase: the 7 progression configs and candidates for the best one beside PyTorch's flash backend.

In one run, on the same tensors, with the same events, L2 emptied alike, in turns; medians. TFLOP/s is
4 * B * H * S^2 * D / time. Each kjit output is compared with attention in fp32, and must be at most twice as far from it
as PyTorch's, plus one rounding. Exit code 3 where there is no PyTorch or no GPU."""

import argparse
import concurrent.futures
import contextlib
import csv
import os
import statistics
import sys

from kjit_ctypes import BF16, FP16, Kjit, attention_args, tensor

STEPS = [
    "1 base",
    "2 swizzled",
    "3 eager K/V loads",
    "4 fragments interleaved",
    "5 double-buffered fragments",
    "6 optimized softmax",
    "7 Q kept in registers",
]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="16,4096,16,128", help="B,S,H,D (%(default)s)")
    parser.add_argument("--dtype", choices=("fp16", "bf16"), default="fp16")
    parser.add_argument("--config", action="append", default=[], help="a candidate's short form; may be given again")
    parser.add_argument("--file", help="candidates, a short form a line")
    parser.add_argument("--set", default="prebuilt", help="a set of candidates, 'none' for none (%(default)s)")
    parser.add_argument("--also", default="", help="further backends of PyTorch: cudnn,efficient")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--top", type=int, default=10, help="candidates in the table (%(default)s); all are in the CSV")
    parser.add_argument("--csv", help="file for every number")
    parser.add_argument("--library", help="libkjit.so")
    parser.add_argument("--keep-l2", action="store_true")
    return parser.parse_args()


def candidate_configs(kjit, options, head_dim, dtype):
    texts = list(options.config)
    if options.file:
        with open(options.file, encoding="utf-8") as lines:
            texts += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    configs = [kjit.parse(text) for text in texts]
    if options.set != "none":
        configs += kjit.set(options.set)
    return [config for config in configs if config.d_head == head_dim and config.dtype == dtype]


class Variant:
    def __init__(self, name, text, run, out):
        self.name, self.text, self.run, self.out = name, text, run, out
        self.times, self.error, self.right = [], float("nan"), True

    @property
    def milliseconds(self):
        return statistics.median(self.times)


def sdpa_variant(torch, name, backend, q, k, v):
    """PyTorch wants (batch, heads, seq, head_dim): views of the same memory."""
    views = [t.transpose(1, 2) for t in (q, k, v)]

    def run():
        with torch.nn.attention.sdpa_kernel(backend):
            variant.out = torch.nn.functional.scaled_dot_product_attention(*views).transpose(1, 2)

    variant = Variant(name, "", run, None)
    return variant


def kjit_variants(torch, kjit, named_configs, q, k, v):
    """One output for all: each is checked before the next writes it."""
    out = torch.empty_like(q)
    dtype = FP16 if q.dtype == torch.float16 else BF16
    described = [tensor(t.data_ptr(), dtype, t.device.index, t.shape, t.stride()) for t in (q, k, v, out)]
    args = attention_args(*described)
    variants = []
    for name, config in named_configs:
        plan = kjit.plan(config, args)

        def run(plan=plan):
            kjit.run(plan, torch.cuda.current_stream().cuda_stream)

        variants.append(Variant(name, kjit.print(config), run, out))
    return variants


def check(torch, variants, q, k, v):
    """The first batch entry beside fp32, one head at a time. variants[0] sets the allowance."""
    ref = torch.empty_like(q[0], dtype=torch.float32)
    for head in range(q.shape[2]):
        rows = [t[0, :, head].float() for t in (q, k, v)]
        weights = torch.softmax(rows[0] @ rows[1].T / q.shape[3] ** 0.5, dim=-1)
        ref[:, head] = weights @ rows[2]
    rounding = torch.finfo(q.dtype).eps / 2 * ref.abs().max().item()
    for variant in variants:
        if variant.out is not None:
            variant.out.fill_(float("nan"))
        variant.run()
        torch.cuda.synchronize()
        variant.error = (variant.out[0].float() - ref).abs().max().item()
        variant.right = variant.error <= 2 * variants[0].error + rounding and bool(torch.isfinite(variant.out).all())


def time_rounds(torch, variants, rounds, flush):
    """The first three rounds are not counted."""
    for number in range(rounds + 3):
        events = []
        for variant in variants:
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            if flush is not None:
                flush.zero_()
            pair[0].record()
            variant.run()
            pair[1].record()
            events.append(pair)
        torch.cuda.synchronize()
        if number >= 3:
            for variant, pair in zip(variants, events):
                variant.times.append(pair[0].elapsed_time(pair[1]))


def report(variants, steps, options, flops):
    def speed(variant):
        return flops / variant.milliseconds / 1e9

    reference = speed(variants[0])
    before = None
    print(f"{'TFLOP/s':>8} {'median ms':>10} {'x FA2':>7} {'step':>7}  what")
    rest = sorted(variants[1 + steps :], key=speed, reverse=True)
    for variant in variants[: 1 + steps] + rest[: options.top]:
        is_step = variant in variants[1 : 1 + steps]
        gain = f"{speed(variant) / before:7.3f}" if is_step and before else " " * 7
        before = speed(variant) if is_step else before
        print(
            f"{speed(variant):8.1f} {variant.milliseconds:10.4f} {speed(variant) / reference:7.3f} {gain}  "
            f"{variant.name}{'' if variant.right else '  WRONG'}  {variant.text}"
        )
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["name", "config", "tflops", "median_ms", "least_ms", "most_ms", "ratio_to_fa2", "error", "right"])
            for v in variants:
                rows.writerow(
                    [v.name, v.text, speed(v), v.milliseconds, min(v.times), max(v.times), speed(v) / reference, v.error, v.right]
                )
    best = max((variant for variant in variants if variant.text), key=speed)
    print(f"best: {speed(best) / reference:.3f} x FA2  {best.text}")


def import_torch():
    try:
        import torch
        import torch.nn.attention
    except ImportError as missing:
        print(f"staircase: skipped: {missing}", file=sys.stderr)
        sys.exit(3)
    if not torch.cuda.is_available():
        print("staircase: skipped: PyTorch sees no GPU", file=sys.stderr)
        sys.exit(3)
    return torch


def make_inputs(torch, options):
    """q, k, v: normally distributed; the seed is printed. $KJIT_SEED repeats a run."""
    batch, seq, heads, head_dim = (int(part) for part in options.shape.split(","))
    torch.cuda.init()
    seed = int(os.environ.get("KJIT_SEED", "0"), 0) or torch.seed()
    torch.manual_seed(seed)
    kind = torch.float16 if options.dtype == "fp16" else torch.bfloat16
    device = torch.device("cuda", torch.cuda.current_device())
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {options.dtype} B{batch} S{seq} H{heads} "
        f"D{head_dim}, seed {seed}"
    )
    return [torch.randn(batch, seq, heads, head_dim, dtype=kind, device=device) for _ in range(3)]


def make_configs(torch, kjit, options, head_dim):
    """(name, config) of the steps, then of the candidates, all compiled; and how many are steps."""
    dtype = FP16 if options.dtype == "fp16" else BF16
    arch = "sm_%d%d" % torch.cuda.get_device_capability()
    steps = [config for config in kjit.set("progression") if config.d_head == head_dim]
    for config in steps:
        config.dtype = dtype
    named = list(zip(STEPS, steps))
    named += [("candidate", config) for config in candidate_configs(kjit, options, head_dim, dtype)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda pair: kjit.build(pair[1], arch), named))
    return named, len(steps)


def make_flush(torch, options, device):
    if options.keep_l2:
        return None
    l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    return torch.empty(max(2 * l2_bytes, 64 << 20), dtype=torch.int8, device=device)


def run(torch, kjit, options):
    """Exit code 0, or 1 when an output is wrong."""
    q, k, v = make_inputs(torch, options)
    batch, seq, heads, head_dim = q.shape
    named, steps = make_configs(torch, kjit, options, head_dim)
    backends = torch.nn.attention.SDPBackend
    variants = [sdpa_variant(torch, "PyTorch flash (FA2)", backends.FLASH_ATTENTION, q, k, v)]
    variants += kjit_variants(torch, kjit, named, q, k, v)
    for name in filter(None, options.also.split(",")):
        variants.append(sdpa_variant(torch, f"PyTorch {name}", getattr(backends, f"{name.upper()}_ATTENTION"), q, k, v))
    check(torch, variants, q, k, v)
    time_rounds(torch, variants, options.rounds, make_flush(torch, options, q.device))
    report(variants, steps, options, 4 * batch * heads * seq * seq * head_dim)
    return 0 if all(variant.right for variant in variants) else 1


def main():
    options = read_options()
    torch = import_torch()
    with contextlib.closing(Kjit(options.library)) as kjit:
        return run(torch, kjit, options)


if __name__ == "__main__":
    sys.exit(main())
