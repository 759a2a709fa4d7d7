#!/usr/bin/env python3
"""Times attention backward of kjit beside its peers, interleaved in one run, and checks every result.

The problems are the papers' grid (16k tokens, heads * head_dim = 2048; head sizes 64, 128, 256; 512 to 16k; both
masks), or with --set odd head sizes that nobody tunes for and those between which they stand, at 4k. Every peer
computes dq, dk and dv by autograd from the output of its own forward call. Before anything is timed the gradients of
one head are checked beside float64 by FlashAttention's rule; a peer that is wrong is not timed. kjit's kernels are
compiled side by side before that. Each round times every peer once in a new random order, the L2 cache flushed before
each; the median of the rounds counts. FLOPs are those of five products (2.5 times the forward call's where the head
sizes are equal), whatever a peer really computes.

"kjit" may sum dq in any order; "kjit same bits" is kjit.attention(deterministic=True).

Writes attention_backward.csv, .md and .png into DIR (by default here).
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import math
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Optional

import attention_report
from attention_problems import HEAD_DIMS, ODD_HEAD_DIMS, ODD_SEQ, SEQS, Problem, cell
from attention_report import Report, Row
from tables import find_package, markdown, number, save_figure, words, wrapped

DTYPE = "bf16"
SAME_BITS = "kjit same bits"
NO_PEERS = ("kjit", SAME_BITS)


@dataclasses.dataclass(frozen=True)
class Backward(Problem):
    """The gradients of an attention forward."""

    @property
    def flops(self) -> float:
        products = 3 * self.head_dim + 2 * self.head_dim_v
        return super().flops * products / (self.head_dim + self.head_dim_v)


def problems(head_dims: list[int], seqs: list[int]) -> list[Backward]:
    return [
        Backward(**vars(cell(size, seq, causal, DTYPE)))
        for size in head_dims
        for causal in (False, True)
        for seq in seqs
    ]


def odd_problems() -> list[Backward]:
    sizes = sorted([*ODD_HEAD_DIMS, *((size, size) for size in HEAD_DIMS)])
    return [
        Backward(**vars(cell(size, ODD_SEQ, causal, DTYPE, size_v)))
        for causal in (False, True)
        for size, size_v in sizes
    ]


# ---- Peers: NAME(tensors, problem) gives the output of a forward call, (batch, seq, heads, head_dim) ----


def _kjit(tensors: Any, problem: Problem, **options: Any) -> Any:
    import kjit

    return kjit.attention(*tensors, causal=problem.causal, **options)


def _sdpa(backend: str) -> Callable[..., Any]:
    def forward(tensors: Any, problem: Problem) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        with sdpa_kernel(SDPBackend.__members__[backend]):
            heads_first = [tensor.transpose(1, 2) for tensor in tensors]
            return scaled_dot_product_attention(*heads_first, is_causal=problem.causal).transpose(1, 2)

    return forward


def _fa3(tensors: Any, problem: Problem, **options: Any) -> Any:
    try:
        module = importlib.import_module("flash_attn_interface")
    except ImportError:
        module = importlib.import_module("fa3ref_interface")  # a build of the same for comparison
    found = module.flash_attn_func(*tensors, causal=problem.causal, **options)
    return found[0] if isinstance(found, tuple) else found


PEERS: dict[str, Callable[..., Any]] = {
    "kjit": _kjit,
    SAME_BITS: lambda *given: _kjit(*given, deterministic=True),
    "FA3": _fa3,
    "FA3 same bits": lambda *given: _fa3(*given, deterministic=True),
    "cuDNN": _sdpa("CUDNN_ATTENTION"),
    "FA2": _sdpa("FLASH_ATTENTION"),
}


class Inputs:
    """q, k, v and the gradient of the output, and what the gradients of one head are in float64."""

    def __init__(self, problem: Problem) -> None:
        import torch

        torch.manual_seed(problem.seq_q + problem.head_dim)
        outer, self.problem, self.torch = (problem.batch, problem.seq_q, problem.heads_q), problem, torch
        sizes = problem.head_dim, problem.head_dim, problem.head_dim_v, problem.head_dim_v
        made = [torch.randn((*outer, size), device="cuda", dtype=torch.bfloat16) for size in sizes]
        self.tensors, self.dout = [tensor.requires_grad_() for tensor in made[:3]], made[3]
        exact, rounded = self._of_head(torch.float64), self._of_head(torch.bfloat16)
        eps = torch.finfo(torch.bfloat16).eps
        #: FlashAttention's rule: twice the error of 16-bit arithmetic, and a rounding.
        self.allowed = [
            (2 * (low.double() - high).abs().max() + eps * max(0.6, high.abs().max())).item()
            for low, high in zip(rounded, exact)
        ]
        self.exact = exact

    def _of_head(self, dtype: Any) -> list[Any]:
        """dq, dk and dv of the last head of the last batch entry, by plain arithmetic in a type."""
        torch, scale = self.torch, self.problem.head_dim**-0.5
        q, k, v, dout = (tensor.detach()[-1, :, -1].to(dtype) for tensor in (*self.tensors, self.dout))
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        scores = (q @ k.T).to(wide) * scale
        if self.problem.causal:
            scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -torch.inf)
        p = scores.softmax(-1)
        del scores
        ds = (dout @ v.T).to(wide)
        ds -= (ds * p).sum(-1, keepdim=True)
        ds = (ds * p * scale).to(dtype)
        return [ds @ k, ds.T @ q, p.to(dtype).T @ dout]

    def run(self, forward: Callable[..., Any]) -> Callable[[], Any]:
        out = forward(self.tensors, self.problem)
        return lambda: self.torch.autograd.grad(out, self.tensors, self.dout, retain_graph=True)

    def errors(self, gradients: Any) -> list[float]:
        """Of dq, dk and dv beside what is allowed: 1 is the most."""
        return [
            (mine[-1, :, -1].double() - exact).abs().max().item() / allowed
            for mine, exact, allowed in zip(gradients, self.exact, self.allowed)
        ]


class Bench:
    def __init__(self, names: list[str], rounds: int) -> None:
        import gpu_clock

        self.names, self.rounds, self.gpu_clock, self.clock = names, rounds, gpu_clock, gpu_clock.Clock()
        self.limits = {"product": gpu_clock.make_product(), "copy": gpu_clock.make_copy()}

    def _prepare(self, inputs: Inputs) -> tuple[dict[str, Any], dict[str, str]]:
        runs, reasons = {}, {}
        for name in self.names:
            try:
                run = inputs.run(PEERS[name])
                errors = inputs.errors(run())
                if max(errors) <= 1:  # not so for NaN
                    runs[name] = run
                else:
                    reasons[name] = "WRONG: dq, dk, dv are off by " + ", ".join(f"{each:.2f}" for each in errors)
            except Exception as error:  # whatever a peer raises is why it is not in the table
                reasons[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
        return runs, reasons

    def measure(self, problem: Problem, until: float) -> Row:
        inputs = Inputs(problem)
        runs, reasons = self._prepare(inputs)
        inputs.exact.clear()
        times = self.clock.rounds(runs, self.rounds, until=until, seldom=self.limits)
        found = self.gpu_clock.medians(times)
        product, copy = (found.pop(limit) for limit in self.limits)
        rounds = max((len(times[name]) for name in runs), default=0)
        flops, moved = 2 * self.gpu_clock.PRODUCT_SIDE**3, 2 * self.gpu_clock.COPY_BYTES
        return Row(problem, found, flops / product / 1e9, moved / copy / 1e6, rounds, reasons)


def first_calls(chosen: list[Backward], names: list[str]) -> list[tuple[Backward, bool]]:
    """The problems that kjit computes, and whether deterministically: each needs kernels of its own."""
    return [(problem, name == SAME_BITS) for name in NO_PEERS if name in names for problem in chosen]


def warm(chosen: list[Backward], names: list[str]) -> None:
    """Make kjit's first calls side by side, so that its kernels are compiled on all processors.

    The operators are called directly, because autograd has one thread for a device, which would compile one kernel
    after the other.
    """
    import torch

    import kjit

    def make(problem: Backward, deterministic: bool) -> None:
        torch.cuda.set_device(0)
        sizes = problem.head_dim, problem.head_dim, problem.head_dim_v, problem.head_dim_v
        outer = problem.batch, problem.seq_q, problem.heads_q
        q, k, v, dout = (torch.zeros((*outer, size), device="cuda", dtype=torch.bfloat16) for size in sizes)
        out, lse = kjit.attention(q, k, v, causal=problem.causal, return_lse=True)
        torch.ops.kjit.attention_backward(
            dout, None, q, k, v, out, lse, None, problem.causal, "bshd", [True] * 3, deterministic
        )

    with ThreadPoolExecutor(16) as pool:
        done = [pool.submit(make, *call) for call in first_calls(chosen, names)]
    for call in done:
        if call.exception():  # the table says so of each problem: it is met again there
            print(f"backward_peers.py: a first call failed: {call.exception()}", file=sys.stderr)
    torch.cuda.synchronize()


# ---- What is told ----


def over_best(row: Row, name: str) -> Optional[float]:
    """One of kjit's over the best peer of the row that makes the same promise."""
    same_bits = name == SAME_BITS
    others = [time for peer, time in row.milliseconds.items() if peer not in NO_PEERS
              and (peer == "FA3 same bits") == same_bits]  # fmt: skip
    own = row.milliseconds.get(name)
    return min(others) / own if own and others else None


def _summary(rows: list[Row], name: str, what: str) -> str:
    ratios = {row: ratio for row, ratio in ((str(row.problem), over_best(row, name)) for row in rows) if ratio}
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    least = min(ratios, key=ratios.__getitem__)
    ahead = sum(ratio >= 1 for ratio in ratios.values())
    return (
        f"{name} over {what}: geometric mean {mean:.3f}, not behind in {ahead} of {len(ratios)} problems, least "
        f"{ratios[least]:.2f} ({least})."
    )


def text(rows: list[Row], names: list[str], conditions: str) -> str:
    lines = []
    for row in rows:
        rates = (number(row.rate(name)) for name in names)
        lines.append([str(row.problem), *rates, *(number(over_best(row, name), 2) for name in NO_PEERS)])
    table = markdown(["problem", *names, "kjit x best peer", "same bits x FA3's"], lines)
    parts = [
        conditions,
        _summary(rows, "kjit", "the best peer"),
        _summary(rows, SAME_BITS, "FA3's deterministic mode"),
        table,
    ]
    return "\n\n".join(wrapped(part) for part in parts if part) + "\n"


def save(out: Path, rows: list[Row], names: list[str], head: str, machine: str) -> None:
    attention_report.write(out / "attention_backward.csv", rows)
    (out / "attention_backward.md").write_text(text(rows, names, head), encoding="utf-8")
    try:
        from attention_plots import draw_cells

        title = f"Attention backward, {machine}, {DTYPE}"
        save_figure(draw_cells(rows, Report(rows, names), title), out, "attention_backward")
    except ImportError as missing:
        print(f"backward_peers.py: no plot: {missing}", file=sys.stderr)


def parse(given: Optional[list[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", type=words([str(size) for size in HEAD_DIMS]), help="64,128,256")
    parser.add_argument("--set", choices=("cells", "odd"), default="cells", help="cells, or odd head sizes")
    parser.add_argument("--seqs", type=words([str(seq) for seq in SEQS]), help=",".join(map(str, SEQS)))
    parser.add_argument("--seconds", type=float, default=120, help="what the whole run may take, about (120)")
    parser.add_argument("--rounds", type=int, default=30, help="at most, for each problem (30)")
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    return parser.parse_args(given)


def main() -> int:
    started, arguments = time.monotonic(), parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    find_package()
    import torch

    if not torch.cuda.is_available():
        print("backward_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    from attention_peers import run

    sizes = [int(size) for size in arguments.head_dims or HEAD_DIMS]
    chosen = problems(sizes, [int(seq) for seq in arguments.seqs or SEQS])
    if arguments.set == "odd":
        chosen = odd_problems()
    bench = Bench(arguments.peers, arguments.rounds)
    warm(chosen, bench.names)
    rows, left_out = run(bench, chosen, arguments.seconds, started)
    head = (
        f"{torch.cuda.get_device_name()}, {DTYPE}, randn; PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}. "
        f"TFLOP/s, medians of interleaved rounds, L2 flushed, without host time; "
        f"{left_out} problems left out. `bench/backward_peers.py {' '.join(sys.argv[1:])}`"
    )
    names = [name for name in bench.names if any(name in row.milliseconds for row in rows)]
    save(arguments.out, rows, names, head, torch.cuda.get_device_name())
    print((arguments.out / "attention_backward.md").read_text(encoding="utf-8"))
    for reason in sorted({f"{name}: {reason}" for row in rows for name, reason in row.reasons.items()}):
        print(f"not measured  {reason}", file=sys.stderr)
    return 1 if not rows or any("WRONG" in row.reasons.get("kjit", "") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
