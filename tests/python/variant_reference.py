"""Attention variants in float64 by PyTorch, with the arguments of kjit.attention: what stands in for kernels where
there is no GPU, and what their results are compared with where there is one."""

import math
import random

import torch

from kjit.variant import bind


def _places(q, k):
    """Indices b, h, q, k of every score, as tensors that broadcast against each other."""
    sizes = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    return [
        torch.arange(size, device=q.device).view([-1 if axis == at else 1 for axis in range(4)])
        for at, size in enumerate(sizes)
    ]


def scores_and_seen(q, k, scale, causal, mask_mod, score_mod, softcap, bias, window, alibi_slopes, attention_chunk=0):
    """(batch, heads, seq_q, seq_kv) for (batch, seq, heads, columns)."""
    places = _places(q, k)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.double()
    if score_mod is not None:
        scores = score_mod(scores, *places)
    row = places[2] + k.shape[1] - q.shape[1]
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double().view(-1, q.shape[2], 1, 1) * (row - places[3]).abs()
    seen = torch.ones_like(scores, dtype=torch.bool)
    if causal:
        seen = seen & (places[3] <= row)
    if attention_chunk:
        seen = seen & (places[3] // attention_chunk == row // attention_chunk)
    if window is not None:
        left, right = window
        seen = seen & (left < 0 or places[3] >= row - left) & (right < 0 or places[3] <= row + right)
    if mask_mod is not None:
        seen = seen & mask_mod(*places)
    return scores, seen & (scores != -math.inf)


def attention(
    q, k, v, *, scale=None, causal=False, layout="bshd", return_lse=False, mask_mod=None, score_mod=None, softcap=0.0,
    bias=None, sinks=None, window=None, alibi_slopes=None, attention_chunk=0, dtype=None,
):  # fmt: skip
    """kjit.attention of these arguments, in q's dtype or `dtype`, and the log-sum-exp."""
    if layout == "bhsd":
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    group = q.shape[2] // k.shape[2]
    wide = [tensor.double() for tensor in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2))]
    scores, seen = scores_and_seen(
        wide[0], wide[1], scale, causal, mask_mod, score_mod, softcap, bias, window, alibi_slopes, attention_chunk
    )
    scores = scores.masked_fill(~seen, -math.inf)
    most = scores.amax(-1, keepdim=True)
    if sinks is not None:
        most = torch.maximum(most, sinks.double().view(1, -1, 1, 1))
    most = most.masked_fill(most == -math.inf, 0)
    weights = torch.exp(scores - most)
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks.double().view(1, -1, 1, 1) - most)
    lse = (most + total.log())[..., 0]
    out = torch.einsum("bhqk,bkhd->bqhd", weights / total.clamp(min=1e-300), wide[2]).to(dtype or q.dtype)
    out = out.transpose(1, 2) if layout == "bhsd" else out
    return (out, lse) if return_lse else out


def check_traced(test, q, k, mask_mod, score_mod, count=12):
    """What the library reads out of the functions, at a few places, beside the functions themselves."""
    bound = bind(mask_mod=mask_mod, score_mod=score_mod)
    draw = random.Random(q.shape[1] * 1000 + k.shape[1])
    sizes = dict(seq_q=q.shape[1], seq_kv=k.shape[1], heads_q=q.shape[2], heads_kv=k.shape[2])
    for _ in range(count):
        place = [draw.randrange(size) for size in (q.shape[0], q.shape[2], q.shape[1], k.shape[1])]
        at = [torch.tensor(index) for index in place]
        found = bound.evaluate(0.75, *place, **sizes)
        seen = True if mask_mod is None else bool(mask_mod(*at))
        score = 0.75 if score_mod is None else float(score_mod(torch.tensor(0.75, dtype=torch.float64), *at))
        seen, score = seen and score != -math.inf, 0.0 if score == -math.inf else score
        test.assertEqual(found.seen, seen, (place, bound.variant.explain()))
        if seen:
            test.assertAlmostEqual(found.score, score, delta=1e-5 * (1 + abs(score)), msg=str(place))
    return bound
