"""Serving attention in float64 and as 16-bit arithmetic has it, sequence by sequence; and problems to try it on."""

import torch


def ragged(rows, keys, heads, heads_kv, size, size_v=None, dtype=torch.float16, device="cpu"):
    """q, k, v of sequences one behind the other, cu_seqlens_q and cu_seqlens_k."""
    kind = {"device": device, "dtype": dtype}
    cu_q, cu_k = (
        torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(device=device, dtype=torch.int32)
        for lengths in (rows, keys)
    )
    return (
        torch.randn(sum(rows), heads, size, **kind),
        torch.randn(sum(keys), heads_kv, size, **kind),
        torch.randn(sum(keys), heads_kv, size_v or size, **kind),
        cu_q,
        cu_k,
    )


def paged_cache(k, v, cu_k, page_size, poison=float("nan")):
    """The same keys and values in pages in reverse order, with poison in every slot that holds none."""
    lengths = cu_k.diff().tolist()
    counts = [-(-length // page_size) for length in lengths]
    total = sum(counts) + 1
    k_pages, v_pages = (t.new_full((total, page_size, *t.shape[1:]), poison) for t in (k, v))
    table = torch.full((len(lengths), max(counts) + 2), 2147480000, dtype=torch.int32, device=k.device)
    table[:, 1::2] = -1
    last = total - 1
    for b, (length, count) in enumerate(zip(lengths, counts)):
        pages = torch.arange(last, last - count, -1, device=k.device)
        last -= count
        table[b, :count] = pages.int()
        positions = torch.arange(length, device=k.device)
        place = (pages[positions // page_size], positions % page_size)
        begin = int(cu_k[b])
        k_pages[place], v_pages[place] = k[begin : begin + length], v[begin : begin + length]
    return k_pages, v_pages, table


def quantised(x, descale):
    """x in e4m3, where descale (one for each head) gives x back; and what it gives."""
    scale = descale.view(-1, 1)
    e4m3 = (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return e4m3, (e4m3.float() * scale)


def rotated(x, positions, cos, sin, interleaved):
    """x (rows, heads, columns) with its first columns rotated: row i by row positions[i] of the tables."""
    half = cos.shape[-1]
    cos, sin = (t[positions].float()[:, None] for t in (cos, sin))
    turned, rest = x[..., : 2 * half].float(), x[..., 2 * half :]
    first, second = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, dim=-1)
    pair = first * cos - second * sin, first * sin + second * cos
    turned = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    return torch.cat([turned.to(x.dtype), rest], dim=-1)


def _hidden(rows, keys, causal, window, chunk, device):
    at = torch.arange(rows, device=device)[:, None] + keys - rows
    key = torch.arange(keys, device=device)[None]
    hidden = torch.zeros(rows, keys, dtype=torch.bool, device=device)
    left, right = window
    if causal:
        right = 0
    if right >= 0:
        hidden |= key > at + right
    if left >= 0:
        hidden |= key < at - left
    if chunk:
        hidden |= key.div(chunk, rounding_mode="floor") != at.div(chunk, rounding_mode="floor")
    return hidden


def attention(q, k, v, cu_q, cu_k, causal=False, window=(-1, -1), chunk=0, softcap=0.0, sinks=None, lse=False,
              half=False):
    """Of ragged tensors, in float64; with half as 16-bit arithmetic has it."""
    out = q.new_zeros((*q.shape[:2], v.shape[-1]), dtype=torch.float64)
    sums = out.new_full(q.shape[:2], -torch.inf)
    group = q.shape[1] // k.shape[1]
    for b in range(len(cu_q) - 1):
        rows, keys = slice(int(cu_q[b]), int(cu_q[b + 1])), slice(int(cu_k[b]), int(cu_k[b + 1]))
        one_k, one_v = (t[keys].repeat_interleave(group, dim=1) for t in (k, v))
        one_q = q[rows]
        if not half:
            one_q, one_k, one_v = one_q.double(), one_k.double(), one_v.double()
        scores = torch.einsum("qhd,khd->hqk", one_q, one_k).double() * q.shape[-1] ** -0.5
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        if half:
            scores = scores.to(q.dtype).double()
        hidden = _hidden(one_q.shape[0], one_k.shape[0], causal, window, chunk, q.device)
        scores = scores.masked_fill(hidden, -torch.inf)
        if sinks is not None:
            sink = sinks.double()[:, None, None].expand(*scores.shape[:2], 1)
            scores = torch.cat([scores, sink], dim=-1)
            one_v = torch.cat([one_v, one_v.new_zeros(1, *one_v.shape[1:])])
        weights = scores.softmax(-1).nan_to_num()
        if half:
            weights = weights.to(q.dtype)
        out[rows] = torch.einsum("hqk,khd->qhd", weights.to(one_v.dtype), one_v).double()
        sums[rows] = scores.logsumexp(-1).T if scores.shape[-1] else -torch.inf
    return (out, sums) if lse else out


def close_enough(found, wanted, wanted16=None):
    """"" when a result is as near to float64 as FlashAttention's tests want it; else what is wrong."""
    if not torch.isfinite(found).all():
        return "not finite"
    eps = torch.finfo(found.dtype).eps
    allowed = 8 * eps if wanted16 is None else 2 * (wanted16 - wanted).abs().max().item() + 1e-5
    if wanted.numel():
        allowed += eps * wanted.abs().max().item()
        error = (found.double() - wanted).abs().max().item()
        if error > allowed:
            return f"error {error:.3g}, allowed {allowed:.3g}"
    return ""
