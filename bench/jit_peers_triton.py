"""Attention forward in Triton, as one writes it by the book: what jit_peers.py compiles beside kjit."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def _forward(
    q, k, v, o, seq_q, seq_kv, heads, scale_log2, q_batch, q_seq, q_head, kv_batch, kv_seq, kv_head,
    head_dim: tl.constexpr, tile_m: tl.constexpr, tile_n: tl.constexpr,
):  # fmt: skip
    """A block holds tile_m rows of one head and walks over its keys; the softmax is kept up to date on the way."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    columns = tl.arange(0, head_dim)
    at_rows = batch * q_batch + head * q_head + rows[:, None] * q_seq + columns[None, :]
    inside = rows[:, None] < seq_q
    k += batch * kv_batch + head * kv_head
    v += batch * kv_batch + head * kv_head
    tile_q = tl.load(q + at_rows, mask=inside, other=0.0)
    highest = tl.full([tile_m], float("-inf"), tl.float32)
    total = tl.zeros([tile_m], tl.float32)
    sums = tl.zeros([tile_m, head_dim], tl.float32)
    for start in range(0, seq_kv, tile_n):
        keys = start + tl.arange(0, tile_n)
        tile_k = tl.load(k + keys[None, :] * kv_seq + columns[:, None], mask=keys[None, :] < seq_kv, other=0.0)
        scores = tl.where(keys[None, :] < seq_kv, tl.dot(tile_q, tile_k) * scale_log2, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        tile_v = tl.load(v + keys[:, None] * kv_seq + columns[None, :], mask=keys[:, None] < seq_kv, other=0.0)
        sums = tl.dot(weights.to(tile_v.dtype), tile_v, sums * shrink[:, None])
        highest = higher
    tl.store(o + at_rows, (sums / total[:, None]).to(o.dtype.element_ty), mask=inside)


def attention(q, k, v):
    """q, k, v: contiguous (batch, seq, heads, head_dim), head_dim a power of two."""
    out = torch.empty_like(q)
    batch, seq_q, heads, head_dim = q.shape
    grid = (triton.cdiv(seq_q, 128), batch * heads)
    _forward[grid](
        q, k, v, out, seq_q, k.shape[1], heads, math.log2(math.e) / math.sqrt(head_dim),
        *q.stride()[:3], *k.stride()[:3], head_dim=head_dim, tile_m=128, tile_n=64, num_warps=8, num_stages=2,
    )  # fmt: skip
    return out
