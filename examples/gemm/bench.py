"""Checks the GEMM against float64 and times it beside PyTorch (cuBLAS), on a GPU.

    bench.py check                     configs x layouts x epilogues x odd sizes
    bench.py table [--csv FILE]        the shapes of README.md with the config that choose() takes
    bench.py sweep FILE [--csv FILE]   many configs for each shape; FILE: JSON,
                                       [{"shape": [m, n, k], "configs": [{"BM": 128, ...}, ...]}, ...]

Every timed variant of a shape is a CUDA graph of several calls that rotate among input sets larger than the L2; the
variants are replayed in turns, in an order drawn anew each round; figures are medians. Inputs are drawn from a normal
distribution, outputs are poisoned with NaN before they are checked.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import torch
import torch.nn.functional as F

import gemm
import kjit

PROJECTIONS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192))
SHAPES = (
    [(8192, 8192, 8192), (4096, 4096, 4096)]
    + [(m, n, k) for m in (1, 16, 128, 2048, 8192) for n, k in PROJECTIONS]
    + [(1000, 1000, 1000), (4088, 4104, 4104), (776, 3000, 1232)]
)
# Not in the geometric mean: cuBLAS has no fast kernel for an odd K.
ODD_SHAPES = [(4095, 4097, 4099), (777, 3001, 1235)]
GELU_SHAPES = [shape for shape in SHAPES if shape[2] % 64 == 0]
TORCH = {5: torch.float16, 15: torch.bfloat16}
LIMIT = {5: 6e-4, 15: 4e-3}  # of the relative error: one rounding to 16 bits, and a margin


class Bench:
    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        self.runtime = kjit.default_runtime()
        self.driver = gemm.Driver()
        self.driver.start()
        self.arch = self.runtime.device_arch(specific=True)
        self.kernels: dict[gemm.Config, Any] = {}

    def build(self, configs: list[gemm.Config]) -> None:
        """Compile side by side; load one after the other."""
        wanted = [c for c in dict.fromkeys(configs) if c not in self.kernels]

        def compile(config: gemm.Config) -> Any:
            try:
                return gemm.Kernel(self.runtime, config, self.arch)
            except Exception as error:  # a rule, or the compiler: the variant is left out, and said
                return error

        with ThreadPoolExecutor(16) as pool:
            for config, kernel in zip(wanted, pool.map(compile, wanted)):
                if isinstance(kernel, Exception):
                    print("left out:", describe(config), kernel, getattr(kernel, "log", "")[:300])
                    continue
                try:
                    kernel.load(self.driver)
                except gemm.DriverError as error:
                    print("left out:", describe(config), error)
                    continue
                if kernel.artifact.spill_bytes:
                    print("spills:", kernel.artifact.spill_bytes, describe(config))
                self.kernels[config] = kernel


def describe(config: gemm.Config) -> str:
    default = gemm.Config()
    shown = [f"{name}={value}" for name, value in vars(config).items() if value != getattr(default, name)]
    return ",".join(shown) or "default"


class Inputs:
    """One set of operands; rows padded to 16 bytes."""

    def __init__(self, m: int, n: int, k: int, dtype: int, a_layout: int, b_layout: int) -> None:
        def matrix(rows: int, columns: int) -> torch.Tensor:
            wide = torch.randn(rows, gemm.divup(columns, 8) * 8, device="cuda", dtype=torch.float32)
            return wide.to(TORCH[dtype])[:, :columns]

        self.a = matrix(m, k) if a_layout == gemm.ROW else matrix(k, m).T
        self.b = matrix(k, n) if b_layout == gemm.ROW else matrix(n, k).T
        self.c = matrix(m, n)
        self.reference = matrix(m, n)  # where PyTorch writes
        self.residual = matrix(m, n)
        self.bias = torch.randn(n, device="cuda").to(TORCH[dtype])

    def pointers(self) -> tuple[int, ...]:
        return tuple(t.data_ptr() for t in (self.a, self.b, self.c, self.bias, self.residual))


def expected(inputs: Inputs, epilogue: int, alpha: float) -> torch.Tensor:
    result = alpha * (inputs.a.double() @ inputs.b.double())
    name = gemm.EPILOGUES[epilogue]
    if name.startswith("bias"):
        result += inputs.bias.double()
    if name == "bias_gelu":
        result = F.gelu(result)
    if name == "bias_silu":
        result = F.silu(result)
    if name == "residual":
        result += inputs.residual.double()
    return result


def error_of(inputs: Inputs, epilogue: int, alpha: float) -> float:
    want = expected(inputs, epilogue, alpha)
    return ((inputs.c.double() - want).norm() / want.norm()).item()


def check_one(bench: Bench, config: gemm.Config, m: int, n: int, k: int, alpha: float = 0.75) -> bool:
    kernel = bench.kernels.get(config)
    if kernel is None:
        return False
    inputs = Inputs(m, n, k, config.dtype, config.a_layout, config.b_layout)
    a, b, c, bias, residual = inputs.pointers()
    call = kernel.prepare(gemm.Problem(m, n, k, alpha), a, b, c, bias, residual)
    errors, same = [], True
    for _ in range(2):
        inputs.c.fill_(float("nan"))
        call(torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        errors.append(error_of(inputs, config.epilogue, alpha))
        copy = inputs.c.clone()
        same = same and (len(errors) == 1 or torch.equal(copy, first))
        first = copy
    good = max(errors) < LIMIT[config.dtype] and same
    if not good:
        print(f"WRONG {max(errors):.2e} same={same} {m}x{n}x{k} {describe(config)}", flush=True)
    return good


def time_variants(
    variants: dict[str, list[Callable[[], None]]], rounds: int, target_ms: float = 4.0
) -> dict[str, float]:
    """Microseconds of one call, by name. Each variant: calls on the current stream, one for each input set."""
    graphs, counts = {}, {}
    stream = torch.cuda.Stream()
    for name, calls in variants.items():
        with torch.cuda.stream(stream):
            for call in calls:
                call()
            stream.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for call in calls:
                call()
            end.record()
            end.synchronize()
            one = start.elapsed_time(end) / len(calls)
        count = max(1, min(64, int(target_ms / max(one, 1e-3)) // len(calls))) * len(calls)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(count):
                calls[i % len(calls)]()
        graphs[name], counts[name] = graph, count
    samples: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            with torch.cuda.stream(stream):
                graphs[name].replay()  # the clock settles, the caches are this variant's own
                start.record()
                graphs[name].replay()
                end.record()
            end.synchronize()
            samples[name].append(start.elapsed_time(end) * 1000 / counts[name])
    return {name: statistics.median(values) for name, values in samples.items()}


def input_sets(m: int, n: int, k: int, dtype: int, a_layout: int, b_layout: int) -> list[Inputs]:
    """As many as are four times as large as the L2 together, 2 to 16."""
    size = 2 * (m * k + k * n + m * n)
    count = max(2, min(16, gemm.divup(4 * 60 * 2**20, size)))
    return [Inputs(m, n, k, dtype, a_layout, b_layout) for _ in range(count)]


def our_calls(bench: Bench, config: gemm.Config, sets: list[Inputs], m: int, n: int, k: int) -> list[Callable]:
    kernel = bench.kernels[config]
    prepared = [kernel.prepare(gemm.Problem(m, n, k), *inputs.pointers()) for inputs in sets]
    return [lambda call=call: call(torch.cuda.current_stream().cuda_stream) for call in prepared]


def torch_calls(sets: list[Inputs], epilogue: int) -> list[Callable]:
    """The same product by PyTorch: cuBLAS alone, or compiled with its epilogue."""
    name = gemm.EPILOGUES[epilogue]
    if name == "none":
        return [lambda i=i: torch.matmul(i.a, i.b, out=i.reference) for i in sets]
    torch._dynamo.reset()
    activation = {"bias": lambda x: x, "bias_gelu": F.gelu, "bias_silu": F.silu}.get(name)
    if activation:
        fused = torch.compile(lambda x, w, bias: activation(F.linear(x, w, bias)), dynamic=False)
        return [lambda i=i: fused(i.a, i.b.T, i.bias) for i in sets]
    fused = torch.compile(lambda x, w, residual: F.linear(x, w) + residual, dynamic=False)
    return [lambda i=i: fused(i.a, i.b.T, i.residual) for i in sets]


def roofline_us(m: int, n: int, k: int) -> float:
    """989 TFLOP/s and 4.8 TB/s, whichever is slower."""
    return max(2 * m * n * k / 989e12, 2 * (m * k + k * n + m * n) / 4.8e12) * 1e6


def check_configs() -> list[gemm.Config]:
    """Every layout, type and epilogue with each way through the kernels."""
    ways = [
        dict(BM=128, BN=256),
        dict(BM=128, BN=256, cluster_m=2),
        dict(BM=128, BN=128, pingpong=1, cluster_m=2),
        dict(BM=128, BN=128, cluster_n=2, store_buffers=1),
        dict(BM=256, BN=128, cluster_m=2, cluster_n=2, stages=3),
        dict(BM=64, BN=64, consumers=1, split_k=4, stages=6, blocks_per_sm=2),
        dict(BM=128, BN=128, split_k=2, cluster_n=2),
        dict(BM=64, BN=32, consumers=1, stages=8),
        dict(BM=64, BN=16, BK=256, consumers=1, stages=3, split_k=2, swap=1, blocks_per_sm=1),
        dict(BM=128, BN=64, stages=8, split_k=4, swap=1),
        dict(BM=128, BN=192, pingpong=1),
        dict(BM=128, BN=128, BK=32, stages=4, instruction=gemm.MMA, blocks_per_sm=2),
        dict(BM=64, BN=128, BK=64, stages=3, instruction=gemm.MMA),
    ]
    configs = []
    for i, way in enumerate(ways):
        for layouts in range(4):
            for dtype in (5, 15):
                config = gemm.Config(
                    **way, a_layout=layouts // 2, b_layout=layouts % 2, dtype=dtype, epilogue=(i + layouts + dtype) % 5
                )
                if config.broken_rule() is None:
                    configs.append(config)
    return configs


def run_check(bench: Bench) -> bool:
    configs = check_configs()
    bench.build(configs)
    sizes = [(1, 8, 8), (128, 256, 64), (333, 777, 1111), (1000, 3000, 500), (17, 4097, 4096), (2500, 2300, 129)]
    good = total = 0
    for config in configs:
        print(describe(config), file=sys.stderr, flush=True)
        for m, n, k in sizes:
            total += 1
            good += check_one(bench, config, m, n, k)
    print(f"check: {good} of {total} right ({len(configs)} configs)", flush=True)
    return good == total


def run_sweep(bench: Bench, items: list[dict[str, Any]], rounds: int, writer: Any) -> None:
    parsed = [(tuple(item["shape"]), [gemm.Config(**c) for c in item["configs"]]) for item in items]
    bench.build([config for _, configs in parsed for config in configs])
    for (m, n, k), configs in parsed:
        configs = [c for c in configs if c in bench.kernels]
        if not configs:
            continue
        first = configs[0]
        sets = input_sets(m, n, k, first.dtype, first.a_layout, first.b_layout)
        right = {config: check_one(bench, config, m, n, k, 1.0) for config in configs}
        variants = {describe(c): our_calls(bench, c, sets, m, n, k) for c in configs if right[c]}
        variants["torch"] = torch_calls(sets, first.epilogue)
        times = time_variants(variants, rounds)
        peer, roof = times.pop("torch"), roofline_us(m, n, k)
        speed = f"{2e-6 * m * n * k / peer:.0f} TFLOP/s"
        print(f"{m}x{n}x{k}: torch {gemm.EPILOGUES[first.epilogue]} {peer:.2f} us ({speed}), roofline {roof:.2f}")
        for name, us in sorted(times.items(), key=lambda pair: pair[1]):
            print(f"   {peer / us:.3f} {us:9.2f} {name}", flush=True)
            writer.writerow([m, n, k, name, f"{us:.3f}", f"{peer:.3f}"])


def geometric_mean(values: list[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")


def run_table(bench: Bench, rounds: int, writer: Any) -> bool:
    """README.md's tables: W as in a linear layer (column-major B), bf16."""
    sm_count = torch.cuda.get_device_properties(0).multi_processor_count
    writer.writerow(["epilogue", "m", "n", "k", "config", "us", "torch_us", "roofline_us", "ratio"])
    jobs = [(0, shape) for shape in SHAPES + ODD_SHAPES] + [(2, shape) for shape in GELU_SHAPES]
    chosen = {
        job: gemm.choose(gemm.Problem(*job[1]), gemm.Config(b_layout=gemm.COLUMN, epilogue=job[0]), sm_count)
        for job in jobs
    }
    bench.build(list(chosen.values()))
    ratios: dict[str, list[float]] = {"none": [], "odd": [], "bias_gelu": []}
    right = True
    for epilogue, (m, n, k) in jobs:
        config = chosen[epilogue, (m, n, k)]
        right = check_one(bench, config, m, n, k, 1.0) and right
        sets = input_sets(m, n, k, config.dtype, config.a_layout, config.b_layout)
        variants = {"ours": our_calls(bench, config, sets, m, n, k), "torch": torch_calls(sets, epilogue)}
        times = time_variants(variants, rounds)
        ours, peer, roof = times["ours"], times["torch"], roofline_us(m, n, k)
        name = "odd" if (m, n, k) in ODD_SHAPES else gemm.EPILOGUES[epilogue]
        ratios[name].append(peer / ours)
        short = describe(dataclasses.replace(config, b_layout=0, epilogue=0))
        flops = 2e-6 * m * n * k
        print(
            f"| {gemm.EPILOGUES[epilogue]} | {m} x {n} x {k} | {ours:.2f} | {peer:.2f} | {flops / ours:.0f} | "
            f"{roof / ours:.2f} | **{peer / ours:.3f}** | `{short}` |",
            flush=True,
        )
        writer.writerow([name, m, n, k, short, f"{ours:.3f}", f"{peer:.3f}", f"{roof:.3f}", f"{peer / ours:.4f}"])
    for name, values in ratios.items():
        print(f"{name}: {len(values)} shapes, geometric mean {geometric_mean(values):.3f}, least {min(values):.3f}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("check", "table", "sweep"))
    parser.add_argument("file", nargs="?")
    parser.add_argument("--csv", default="/dev/null")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.manual_seed(int(time.time()))
    bench = Bench()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    if options.what == "check":
        return 0 if run_check(bench) else 1
    with open(options.csv, "w", newline="") as file:
        if options.what == "table":
            return 0 if run_table(bench, options.rounds, csv.writer(file)) else 1
        with open(options.file) as items:
            run_sweep(bench, json.load(items), options.rounds, csv.writer(file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
