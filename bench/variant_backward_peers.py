#!/usr/bin/env python3
"""Times gradients of attention variants: of kjit beside dense causal ones, of FlexAttention and of FlashAttention-3.

The variants and sizes are those of variant_peers.py, but for block lists, which have no gradients. Each peer computes
dq, dk and dv by autograd; those of one head are checked beside float64 before anything is timed, and a peer that is
wrong is not. All variants and peers of a size are timed interleaved, in new random orders, L2 flushed before each call,
medians count.

TFLOP/s count attended pairs, by 10 * pairs * head_dim operations. "per block" is the time of a visited block of 128 by
128 scores beside that of dense causal attention, whose gradients have the same bits at each call, as variants' have; 1
where they are equal, above 1 where the variant is faster.

Writes variant_backward_peers.md into DIR.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Optional

from tables import find_package, markdown, number, words
from variant_peers import VARIANTS, Inputs, Variant, count_pairs

CELLS = ((64, 4096), (128, 4096), (128, 16384), (256, 4096))
PEERS = ("kjit", "Flex", "FA3")
DENSE = "causal, dense"
#: Longest sequence whose scores of one head are computed in float64.
CHECKED = 4096


class Problem:
    """One size: inputs that want gradients, and the gradient of the output."""

    def __init__(self, head_dim: int, length: int) -> None:
        import torch

        self.inputs = Inputs(head_dim, length)
        self.tensors = [tensor.requires_grad_() for tensor in (self.inputs.q, self.inputs.k, self.inputs.v)]
        self.dout = torch.randn_like(self.inputs.q)

    def gradients_of_head(self, variant: Variant, dtype: Any) -> list[Any]:
        """dq, dk and dv of the last head of the last batch entry, by plain arithmetic in a type."""
        import torch

        inputs = self.inputs
        q, k, v = (tensor.detach()[-1, :, -1].to(dtype).requires_grad_() for tensor in self.tensors)
        rows = torch.arange(inputs.length, device="cuda")[:, None]
        scores = (q @ k.T) * inputs.head_dim**-0.5
        scores = scores if dtype is torch.float64 else scores.float()
        if variant.score is not None:
            scores = variant.score(inputs, scores, torch.tensor(inputs.heads - 1, device="cuda"), rows, rows.T)
        if variant.mask is not None:
            scores = scores.masked_fill(~variant.mask(inputs, rows, rows.T), -torch.inf)
        out = scores.softmax(-1).to(dtype) @ v
        return list(torch.autograd.grad(out, (q, k, v), self.dout[-1, :, -1].to(dtype)))

    def check(self, variant: Variant, runs: dict[str, Callable[[], Any]]) -> dict[str, str]:
        """Takes out what is wrong by FlashAttention's rule, and says by how much."""
        import torch

        reasons = {}
        exact = self.gradients_of_head(variant, torch.float64)
        rounded = self.gradients_of_head(variant, torch.bfloat16)
        for peer, run in list(runs.items()):
            share = max(
                ((mine[-1, :, -1].double() - high).abs().max()
                 / (variant.tolerance * (low.double() - high).abs().max() + 2**-7 * high.abs().max())).item()
                for mine, low, high in zip(run(), rounded, exact)
            )  # fmt: skip
            if not share <= 1:
                reasons[peer] = f"WRONG: {share:.2f} of what is allowed"
                del runs[peer]
        return reasons

    def run_of(self, out: Any) -> Callable[[], Any]:
        import torch

        return lambda: torch.autograd.grad(out, self.tensors, self.dout, retain_graph=True)


def forward_kjit(problem: Problem, variant: Variant) -> Any:
    import kjit

    options = variant.kjit(problem.inputs)
    return kjit.attention(*problem.tensors, deterministic=variant.name == DENSE, **options)


_flex_compiled: Any = None


def forward_flex(problem: Problem, variant: Variant) -> Any:
    global _flex_compiled
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if not variant.flex:
        raise NotImplementedError("left out")
    inputs = problem.inputs
    torch._dynamo.config.recompile_limit = 1000
    _flex_compiled = _flex_compiled or torch.compile(flex_attention, dynamic=False)
    mask = None
    if variant.mask is not None:
        mask = create_block_mask(lambda b, h, q, k: variant.mask(inputs, q, k), None, None, inputs.length,
                                 inputs.length, device="cuda")  # fmt: skip
    change = None if variant.score is None else lambda s, b, h, q, k: variant.score(inputs, s, h, q, k)
    heads_first = [tensor.transpose(1, 2) for tensor in problem.tensors]
    return _flex_compiled(*heads_first, score_mod=change, block_mask=mask).transpose(1, 2)


def forward_fa3(problem: Problem, variant: Variant) -> Any:
    if variant.fa3 is None:
        raise NotImplementedError("left out")
    try:
        from flash_attn_interface import flash_attn_func
    except ImportError:
        from fa3ref_interface import flash_attn_func  # a build of the same for comparison
    result = flash_attn_func(*problem.tensors, **variant.fa3)
    return result[0] if isinstance(result, tuple) else result


FORWARD = {"kjit": forward_kjit, "Flex": forward_flex, "FA3": forward_fa3}


def _compile_ahead(problem: Problem, variants: list[Variant]) -> None:
    """kjit's kernels, forward and backward, in parallel. Faults show again when the peers are prepared."""
    import torch

    def first_call(variant: Variant) -> None:
        torch.cuda.set_device(0)
        try:
            # On this thread: autograd's engine has one thread for a GPU.
            forward_kjit(problem, variant).grad_fn(problem.dout, None)
        except Exception:  # noqa: S110
            pass

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(first_call, variants))


def measure(cell: tuple[int, int], peers: list[str], names: list[str], rounds: int, until: float) -> tuple[Any, Any]:
    """A row for each variant: (name, pairs, visited pairs, milliseconds of each peer), and why others are missing."""
    import gpu_clock

    problem, reasons, runs = Problem(*cell), {}, {}
    variants = [each for each in VARIANTS if each.name in names]
    if "kjit" in peers:
        _compile_ahead(problem, variants)
    for variant in variants:
        own: dict[str, Callable[[], Any]] = {}
        for peer in peers:
            try:
                own[peer] = problem.run_of(FORWARD[peer](problem, variant))
                own[peer]()
            except Exception as error:  # whatever a peer raises is why it is not in the table
                own.pop(peer, None)
                if "left out" not in str(error):
                    reasons[variant.name, peer] = f"{type(error).__name__}: {str(error).strip()[:160]}"
        if cell[1] <= CHECKED:
            reasons |= {(variant.name, peer): why for peer, why in problem.check(variant, own).items()}
        runs |= {(variant.name, peer): run for peer, run in own.items()}
    times = gpu_clock.medians(gpu_clock.Clock().rounds(runs, rounds, until=until))
    rows = []
    for variant in variants:
        pairs = [each * problem.inputs.heads * problem.inputs.batch for each in count_pairs(problem.inputs, variant)]
        found = {peer: times[variant.name, peer] for peer in PEERS if (variant.name, peer) in times}
        rows.append((variant.name, *pairs, found))
    return rows, reasons


def table_of(cell: tuple[int, int], rows: Any) -> str:
    dense = next((row for row in rows if row[0] == DENSE and "kjit" in row[3]), None)
    lines = []
    for name, pairs, visited, times in rows:
        own = times.get("kjit")
        per_block: Optional[float] = None
        if dense and own:
            per_block = (dense[3]["kjit"] / dense[2]) / (own / visited)
        rate = 1e-8 * pairs * cell[0] / own if own else None
        over = [times[peer] / own if own and peer in times else None for peer in ("Flex", "FA3")]
        lines.append([name, number(own, 3), number(rate), number(per_block, 2), *(number(each, 2) for each in over)])
    head = [f"hd{cell[0]}, {cell[1]}", "ms", "TFLOP/s", "per block", "x Flex", "x FA3"]
    return markdown(head, lines)


def main() -> int:
    names = [variant.name for variant in VARIANTS if "blocks" not in variant.name and variant.name != "block-sparse"]
    sizes = [f"{head_dim}x{length}" for head_dim, length in CELLS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=words(sizes), default=sizes, help=",".join(sizes))
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=120, help="what the whole run may take, about (120)")
    parser.add_argument("--rounds", type=int, default=15, help="at most, for each size (15)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the result")
    arguments, started = parser.parse_args(), time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    find_package()
    import torch

    if not torch.cuda.is_available():
        print("variant_backward_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    head = (
        f"{torch.cuda.get_device_name()}, bf16, randn; PyTorch {torch.__version__}, CUDA {torch.version.cuda}. Medians "
        f"of interleaved rounds, L2 flushed. `bench/variant_backward_peers.py {' '.join(sys.argv[1:])}`"
    )
    parts, wrong = [head], False
    for index, size in enumerate(arguments.sizes):
        head_dim, length = map(int, size.split("x"))
        left = started + arguments.seconds - time.monotonic()
        if left <= 2:
            parts.append(f"{size}: the time was up.")
            continue
        until = time.monotonic() + left / (len(arguments.sizes) - index)
        rows, reasons = measure((head_dim, length), arguments.peers, names, arguments.rounds, until)
        parts.append(table_of((head_dim, length), rows))
        parts += [f"not measured: {size} {name}, {peer}: {why}" for (name, peer), why in sorted(reasons.items())]
        wrong = wrong or any("WRONG" in why and peer == "kjit" for (_, peer), why in reasons.items())
        (arguments.out / "variant_backward_peers.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print("\n\n".join(parts))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
