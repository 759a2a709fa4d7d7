#!/usr/bin/env python3
"""Times attention over few keys: attention_short_sm90's configs beside attention_sm90, cuDNN and FlashAttention-3.

Problems: many (batch, head) pairs of 50 to 256 tokens, as in BERT and ViT, and long queries against the few keys of a
text, as in image generation. For each, every config of a list of shapes (consumers, blocks_per_sm, stages, q_buffers)
that is legal is checked beside float64 and then timed, in turns with the peers, L2 flushed. GB/s counts q, k, v and o
once.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from attention_problems import Problem
from attention_race import Drawn, build_ahead
from tables import find_package, markdown, words

#: consumers, blocks_per_sm, stages, q_buffers
SHAPES = ((2, 2, 2, 2), (2, 2, 3, 2), (2, 2, 2, 3), (4, 1, 4, 2), (4, 1, 2, 3), (3, 1, 2, 2), (3, 1, 2, 3),
          (3, 1, 3, 2), (2, 1, 2, 2), (2, 1, 3, 2), (2, 1, 2, 4), (1, 2, 1, 2), (1, 3, 2, 2), (1, 4, 1, 2))  # fmt: skip


def _problem(batch: int, heads: int, seq_q: int, seq_kv: int, head_dim: int, causal: bool = False,
             heads_kv: int = 0, layout: str = "bshd") -> Drawn:  # fmt: skip
    return Drawn(batch, heads, heads_kv or heads, seq_q, seq_kv, head_dim, head_dim, causal, "bf16", layout, "short")


PROBLEMS = {
    "bert": _problem(512, 16, 128, 128, 64),
    "bert_bhsd": _problem(512, 16, 128, 128, 64, layout="bhsd"),
    "vit": _problem(256, 12, 197, 197, 64),
    "cross": _problem(16, 16, 4096, 77, 64),
    "cross_1k": _problem(32, 20, 1024, 77, 64),
    "tokens_64": _problem(512, 16, 64, 64, 64),
    "tokens_256": _problem(128, 16, 256, 256, 64),
    "causal": _problem(512, 16, 128, 128, 64, causal=True),
    "hd128": _problem(256, 16, 128, 128, 128),
    "grouped": _problem(256, 32, 128, 128, 128, heads_kv=8),
    "hd32": _problem(512, 16, 100, 100, 32),
    "few": _problem(16, 12, 128, 128, 64),
    "cross_40": _problem(16, 8, 4096, 77, 40),
}

#: Few queries against many keys, as in decoding: attention_decode_sm90's tile_n and blocks_per_sm.
DECODE_SHAPES = ((64, 1), (64, 2), (64, 3), (64, 4), (128, 1), (128, 2), (128, 3))
DECODES = {
    "d64_457": dataclasses.replace(_problem(13, 40, 1, 457, 64, heads_kv=20), use="decode"),
    "d48_3731": dataclasses.replace(_problem(20, 20, 1, 3731, 48, layout="bhsd"), use="decode"),
    "d96_48847": dataclasses.replace(_problem(1, 28, 1, 48847, 96), use="decode"),
    "d64_1414": dataclasses.replace(_problem(109, 48, 1, 1414, 64, heads_kv=12, layout="bhsd"), use="decode"),
    "d64_395": dataclasses.replace(_problem(7, 96, 1, 395, 64, heads_kv=24, layout="bhsd"), use="decode"),
    "d128_307": dataclasses.replace(_problem(60, 32, 61, 307, 128), use="decode"),
    "d32_41921": dataclasses.replace(_problem(9, 4, 31, 41921, 32), use="decode"),
    "d64_8k": dataclasses.replace(_problem(8, 64, 1, 8192, 64, heads_kv=8), use="decode"),
    "d128_6234": dataclasses.replace(_problem(16, 32, 1, 6234, 128, heads_kv=8), use="decode"),
    "d64_300": dataclasses.replace(_problem(40, 8, 1, 300, 64), use="decode"),
    "d96_31q": dataclasses.replace(_problem(8, 8, 31, 8192, 96), use="decode"),
    "d240_54q": dataclasses.replace(_problem(9, 12, 54, 3411, 240), use="decode"),
    "d128_696": dataclasses.replace(_problem(4, 48, 16, 696, 128), use="decode"),
}
PROBLEMS.update(DECODES)


class Given:
    """A config of any family, as Python's calls take one."""

    def __init__(self, family: str, text: str) -> None:
        from kjit import _abi
        from kjit._library import call, lib

        self._kernel, self._text = _abi.kjit_config(), text
        handle = ctypes.c_void_p(lib.kjit_family_find(family.encode()))
        call(lib.kjit_config_parse, handle, text.encode(), ctypes.byref(self._kernel))
        call(lib.kjit_config_check, ctypes.byref(self._kernel), b"sm_90a")


def _short_text(problem: Problem, shape: tuple[int, int, int, int], step: int) -> str:
    keys = (problem.seq_kv + step - 1) // step * step
    consumers, blocks, stages, q_buffers = shape
    return (
        f"dtype={problem.dtype},head_dim={problem.head_dim},head_dim_v={problem.head_dim_v},"
        f"causal={int(problem.causal)},tile_n={keys},consumers={consumers},stages={stages},"
        f"q_buffers={q_buffers},blocks_per_sm={blocks}"
    )


def _decode_text(problem: Problem, tile_n: int, blocks: int) -> str:
    """With as many stages as shared memory holds."""
    rows = (problem.seq_q * problem.heads_q // problem.heads_kv + 15) // 16 * 16
    bands = (problem.head_dim + 63) // 64
    room = 232448 if blocks == 1 else 233472 // blocks - 1024
    room -= 6000 + (64 * 128 * bands if problem.head_dim > 128 else 0)
    stages = min(16, room // (tile_n * 256 * bands))
    return (
        f"dtype={problem.dtype},head_dim={problem.head_dim},head_dim_v={problem.head_dim_v},causal=0,rows={rows},"
        f"tile_n={tile_n},stages={stages},blocks_per_sm={blocks}"
    )


def _sm90_text(problem: Problem) -> str:
    """What attention_sm90's planner takes where it is asked: two consumers, two buffers for Q."""
    keys = 64 if problem.seq_kv <= 64 else 128
    return (
        f"dtype={problem.dtype},head_dim={problem.head_dim},head_dim_v={problem.head_dim_v},"
        f"causal={int(problem.causal)},consumers={min(2, (problem.seq_q + 63) // 64)},tile_n={keys},stages=2,"
        f"q_buffers=2,o_chunks=0,ping_pong=1,rescale_slack=15,packed=1,split=0"
    )


def _variants(problem: Drawn, step: int) -> dict[str, Optional[Given]]:
    """Named configs; those that break a rule are left out."""
    found: dict[str, Optional[Given]] = {"kjit": None}
    named = {"sm90": ("attention_sm90", _sm90_text(problem))}
    if problem.use == "decode":
        named = {
            f"tile {tile_n} b{blocks}": ("attention_decode_sm90", _decode_text(problem, tile_n, blocks))
            for tile_n, blocks in DECODE_SHAPES
        }
        whole = _sm90_text(problem)
        named["sm90"] = ("attention_sm90", whole)
        split = whole.replace("q_buffers=2", "q_buffers=1").replace("split=0", "split=1")
        named["sm90 split"] = ("attention_sm90", split)
    for shape in SHAPES if problem.use != "decode" else ():
        named["c{} b{} s{} q{}".format(*shape)] = ("attention_short_sm90", _short_text(problem, shape, step))
    for name, (family, text) in named.items():
        try:
            found[name] = Given(family, text)
        except Exception as reason:  # a config that does not fit
            print(f"{name}: {str(reason)[:140]}", file=sys.stderr)
    return found


def _build(configs: list[Given]) -> None:
    """Compile in parallel."""
    import kjit
    from kjit._library import lib

    runtime = kjit.default_runtime()

    def build(config: Given) -> None:
        artifact = ctypes.c_void_p()
        lib.kjit_config_build(runtime.handle, ctypes.byref(config._kernel), b"sm_90a", 0, ctypes.byref(artifact), None)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(build, configs))


def _runs(
    inputs: Any, variants: dict[str, Optional[Given]], peers: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What computes the inputs rightly, and why the others do not."""
    import torch

    from kjit import _torch

    runs: dict[str, Any] = {}
    wrong = []
    makers: dict[str, Any] = dict(peers)
    for name, config in variants.items():
        out = inputs.empty_out()
        makers[name] = lambda inputs, config=config, out=out: lambda: _torch._direct(
            (inputs.q, inputs.k, inputs.v), (None, inputs.problem.causal, "bshd", False, config), out
        )
    for name, make in makers.items():
        try:
            run = make(inputs)
            error = inputs.error(run())
            if inputs.is_right(error):
                runs[name] = run
            else:
                wrong.append(f"{name}: WRONG: {error:.3g}, allowed {inputs.allowed:.3g}")
        except Exception as reason:  # whatever a peer raises is why it is not in the table
            wrong.append(f"{name}: {type(reason).__name__}: {str(reason)[:100]}")
    torch.cuda.synchronize()
    return runs, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=words(PROBLEMS), default=list(PROBLEMS), help=",".join(PROBLEMS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--step", type=int, default=16, help="tile_n is a multiple of this (16)")
    parser.add_argument("--peers", default="cuDNN,FA3")
    parser.add_argument("--plain", action="store_true", help="what the planner chooses alone, no list of configs")
    arguments = parser.parse_args()
    started = time.monotonic()
    find_package()
    import attention_calls
    import gpu_clock
    import kjit
    from attention_inputs import Inputs

    peers = attention_calls.find([name for name in arguments.peers.split(",") if name])
    problems = {name: PROBLEMS[name] for name in arguments.problems}
    variants = {name: {"kjit": None} if arguments.plain else _variants(problem, arguments.step)
                for name, problem in problems.items()}  # fmt: skip
    build_ahead(kjit.default_runtime(), list(problems.values())).shutdown()
    _build([config for each in variants.values() for config in each.values() if config])
    print(f"built after {time.monotonic() - started:.1f} s", file=sys.stderr)
    clock, body, failed = gpu_clock.Clock(), [], False
    for name, problem in problems.items():
        if time.monotonic() - started > arguments.seconds:
            print(f"{name}: no time left", file=sys.stderr)
            continue
        runs, wrong = _runs(Inputs(problem), variants[name], peers)
        failed |= any("WRONG" in line for line in wrong)
        print("\n".join(f"{name}: {line}" for line in wrong), file=sys.stderr)
        times = gpu_clock.medians(clock.rounds(runs, arguments.rounds))
        best_peer = min((times[peer] for peer in peers if peer in times), default=float("nan"))
        for run, milliseconds in sorted(times.items(), key=lambda item: item[1]):
            speed, ratio = problem.bytes_moved / milliseconds / 1e6, best_peer / milliseconds
            body.append([name, str(problem), run, f"{1e3 * milliseconds:.1f}", f"{speed:.0f}", f"{ratio:.2f}"])
    print(markdown(["name", "problem", "what", "us", "GB/s", "x best peer"], body))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
