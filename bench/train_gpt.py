#!/usr/bin/env python3
"""Trains a small GPT on random text through kjit and through PyTorch's attention, from the same seed.

A table of the losses, the time of a step and the most memory, for each way of attention, with and without
torch.compile. "kjit" is kjit.attention; "cudnn" and "flash" are scaled_dot_product_attention with that backend alone;
"enabled" is scaled_dot_product_attention after kjit.enable(). Weights and data are the same for all of them. "NAME 2"
is a second run of the first way: as much as runs of one way differ, ways may differ too.

The text is sentences of a vocabulary of its own, drawn by a seed, so that there is something to learn: the loss falls
from ln(VOCABULARY) to what a word says of the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import sys
import time
from typing import Any, Callable, Optional

from tables import find_package, markdown, words

VOCABULARY = 4096
#: What may follow a word, drawn anew for each.
FOLLOWERS = 16
ATTENTIONS = ("kjit", "same bits", "enabled", "cudnn", "flash")
#: Steps at the end whose losses are compared in the mean, and steps before any is timed.
LAST, WARM_UP = 20, 10


def make_text(tokens: int, seed: int, torch: Any) -> Any:
    """Words, each one of the followers of the word before."""
    generator = torch.Generator().manual_seed(seed)
    followers = torch.randint(VOCABULARY, (VOCABULARY, FOLLOWERS), generator=generator)
    picks = torch.randint(FOLLOWERS, (tokens,), generator=generator).tolist()
    table, word, text = followers.tolist(), 0, []
    for pick in picks:
        word = table[word][pick]
        text.append(word)
    return torch.tensor(text)


def make_attention(name: str) -> Callable[..., Any]:
    """(q, k, v) as (batch, seq, heads, head_dim) to the same."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if name in ("kjit", "same bits"):
        import kjit

        return lambda q, k, v: kjit.attention(q, k, v, causal=True, deterministic=name == "same bits")

    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION}.get(name, SDPBackend.FLASH_ATTENTION)

    def attention(q: Any, k: Any, v: Any) -> Any:
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        with sdpa_kernel(backend):
            found = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True)
        return found.transpose(1, 2)

    return attention


def make_model(arguments: argparse.Namespace, attention: Callable[..., Any]) -> Any:
    import torch
    from torch import nn

    width, heads = arguments.width, arguments.width // arguments.head_dim

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2)
            x = x + self.out(attention(q, k, v).reshape(x.shape))
            return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(arguments.seq, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(arguments.layers)))
            self.last = nn.LayerNorm(width)

        def forward(self, text: Any, following: Any) -> Any:
            x = self.words(text) + self.places.weight
            logits = self.last(self.blocks(x)) @ self.words.weight.T
            return nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten())

    torch.manual_seed(arguments.seed)
    model = Gpt().cuda()
    nn.init.normal_(model.words.weight, std=0.02)
    nn.init.normal_(model.places.weight, std=0.02)
    return model


@contextlib.contextmanager
def _enabled(name: str) -> Any:
    if name != "enabled":
        yield
        return
    import kjit

    kjit.enable()
    try:
        yield
    finally:
        kjit.disable()


def train(arguments: argparse.Namespace, name: str, compiled: bool, data: Any, until: float) -> dict[str, Any]:
    """Losses of each step, the median milliseconds of a step, the most bytes of memory."""
    import torch

    model = make_model(arguments, make_attention(name))
    step = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    losses, times = [], []
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for index in range(arguments.steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        batch = data[index * arguments.batch : (index + 1) * arguments.batch]
        begin.record()
        with torch.autocast("cuda", torch.bfloat16):
            loss = step(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        losses.append(loss.detach())
        times.append((begin, end))
        if index % 16 == 15:
            torch.cuda.synchronize()
            if time.monotonic() > until:
                break
    torch.cuda.synchronize()
    milliseconds = [begin.elapsed_time(end) for begin, end in times[WARM_UP:]]
    return {
        "losses": torch.stack(losses).float().tolist(),
        "milliseconds": statistics.median(milliseconds) if milliseconds else math.nan,
        "bytes": torch.cuda.max_memory_allocated(),
    }


def _row(name: str, compiled: bool, found: dict[str, Any], first: dict[str, Any]) -> list[str]:
    losses = found["losses"]
    shared = min(len(losses), len(first["losses"]))
    most = max(abs(a - b) for a, b in zip(losses, first["losses"]))
    last = statistics.fmean(losses[-LAST:])
    other = statistics.fmean(first["losses"][:shared][-LAST:])
    return [
        f"{name}{', compiled' if compiled else ''}",
        str(len(losses)),
        f"{losses[0]:.3f}",
        f"{last:.4f}",
        f"{statistics.fmean(losses[:shared][-LAST:]) - other:+.4f}",
        f"{most:.4f}",
        f"{found['milliseconds']:.2f}",
        f"{found['bytes'] / 2**30:.2f}",
    ]


def parse(given: Optional[list[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", type=words(ATTENTIONS), default=list(ATTENTIONS), help=",".join(ATTENTIONS))
    parser.add_argument("--compile", type=words(("off", "on")), default=["off", "on"], help="off,on")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600, help="what the whole run may take, about (600)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(given)


def main() -> int:
    arguments, started = parse(), time.monotonic()
    find_package()
    import torch

    if not torch.cuda.is_available():
        print("train_gpt.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    ways = [(name, state == "on") for state in arguments.compile for name in arguments.attention]
    ways.insert(1, (f"{arguments.attention[0]} 2", arguments.compile[0] == "on"))
    rows_of_text = arguments.steps * arguments.batch
    text = make_text(rows_of_text * (arguments.seq + 1), arguments.seed, torch).cuda()
    data, first, table = text.view(rows_of_text, -1), None, []
    for index, (name, compiled) in enumerate(ways):
        left = started + arguments.seconds - time.monotonic()
        way = name.removesuffix(" 2")
        if left <= 0:
            break
        try:
            with _enabled(way):
                until = time.monotonic() + left / (len(ways) - index)
                found = train(arguments, way, compiled, data, until)
        except Exception as error:  # a way that fails is a line of the table, and the others go on
            table.append([f"{name}{', compiled' if compiled else ''}", repr(error)[:60], *[""] * 6])
            continue
        first = first or found
        table.append(_row(name, compiled, found, first))
    sizes = f"{arguments.layers} layers of {arguments.width}, head size {arguments.head_dim}, causal"
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {sizes}, {arguments.batch} x {arguments.seq}")
    head = ["attention", "steps", "first loss", f"last {LAST}", "less the first's", "most", "ms a step", "GiB"]
    print(markdown(head, table))
    return 0 if first is not None else 1


if __name__ == "__main__":
    sys.exit(main())
