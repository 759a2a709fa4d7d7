"""FlashAttention-3's functions, by its signatures: `from kjit.flash_attn_interface import flash_attn_with_kvcache`.

What the library computes means what it means there; an argument that it does not compute is a NotImplementedError that
names it. `pack_gqa` changes nothing, because query heads are packed wherever that is faster. `deterministic` concerns
the gradients of flash_attn_func(), as it does there; outputs have the same bits in every run anyway.
Lengths stay on the device, so that every function can be captured into a CUDA graph. docs/serving.md has the details.
"""

from __future__ import annotations

from typing import Any, Optional, Union

from . import flash_attn
from .flash_attn import _not_computed, _require_packed, _serving
from .flash_attn import flash_attn_func as _dense

Tensor = Any  # a PyTorch tensor

def _refuse(**values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            raise _not_computed(name, value)


def _widened(tensors: tuple[Any, ...], q_descale: Any, k_descale: Any, batch: int) -> tuple[tuple[Any, ...], Any]:
    """The tensors with an 8-bit q in 16 bits, and k_descale with q_descale in it."""
    q, k = tensors[:2]
    q, k_descale = _serving().widened(q, q_descale, k_descale, batch, k.shape[-2])
    return (q, *tensors[1:]), k_descale


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """q: (batch, seq_q, heads_q, head_dim); k, v: (batch, seq_kv, heads_kv, head_dim). causal is aligned bottom right.

    Returns out, or (out, lse) with return_attn_probs.
    """
    if qv is not None or q_descale is not None or k_descale is not None or v_descale is not None:
        _refuse(qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    if tuple(window_size) == (-1, -1) and attention_chunk == 0 and softcap == 0.0:
        found = _dense(
            q, k, v, softmax_scale=softmax_scale, causal=causal, deterministic=deterministic,
            return_attn_probs=return_attn_probs,
        )  # fmt: skip
        return found[:2] if return_attn_probs else found
    options = (softmax_scale, causal, tuple(window_size), attention_chunk, softcap, num_splits, sm_margin, 0, False)
    serving = _serving()
    return serving.run(serving.DENSE, (q, k, v), options, None, None, None, return_attn_probs, None)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: Optional[int] = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """qkv: (batch, seq, 3, heads, head_dim), or with num_heads_q (batch, seq, num_heads_q + 2 * heads_kv, head_dim),
    the heads of q before those of k and these before those of v. Read where it lies.

    Returns out, or (out, lse) with return_attn_probs.
    """
    if num_heads_q is None or len(getattr(qkv, "shape", ())) == 5:
        _require_packed("qkv", qkv, 5, 3)
        parts = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    else:
        parts = _heads_apart(qkv, num_heads_q)
    return flash_attn_func(
        *parts, softmax_scale=softmax_scale, causal=causal, q_descale=q_descale, k_descale=k_descale,
        v_descale=v_descale, window_size=window_size, attention_chunk=attention_chunk, softcap=softcap,
        deterministic=deterministic, sm_margin=sm_margin, return_attn_probs=return_attn_probs,
    )  # fmt: skip


def _heads_apart(qkv: Tensor, heads_q: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of a tensor that has the heads of all three along one axis."""
    shape = getattr(qkv, "shape", None)
    if shape is None:
        raise TypeError(f"qkv is a {type(qkv).__name__}: must be a tensor")
    rest = shape[2] - heads_q if len(shape) == 4 else 0
    if heads_q < 1 or rest < 2 or rest % 2 != 0:
        rule = "must have 4 axes, and num_heads_q + 2 * heads_kv heads along axis 2"
        raise ValueError(f"qkv has shape {tuple(shape)} and num_heads_q is {heads_q}: {rule}")
    keys = heads_q + rest // 2
    return qkv[:, :, :heads_q], qkv[:, :, heads_q:keys], qkv[:, :, keys:]


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Optional[Tensor],
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Optional[Tensor] = None,
    seqused_k: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    block_table: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    out: Optional[Tensor] = None,
    scheduler_metadata: Optional[Tensor] = None,
    s_aux: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None,
) -> Any:
    """q: (total_q, heads_q, head_dim); k, v: (total_k, heads_kv, head_dim), or with a page table (pages, page size,
    heads_kv, head_dim). Sequence b has the rows from cu_seqlens_q[b] to cu_seqlens_q[b + 1] - 1, or seqused_q[b] of
    them.

    max_seqlen_q and max_seqlen_k are bounds: they may be padded, and do not change the result. The arguments behind the
    star are those of other engines' forks: block_table (or page_table), out, scheduler_metadata, and one logit for each
    query head, s_aux (or sinks). Returns out, or (out, lse) with return_attn_probs; lse is (heads_q, total_q).
    """
    if qv is not None:
        _refuse(qv=qv)
    serving = flash_attn._module or _serving()
    names = serving.VARLEN
    tensors: tuple[Any, ...] = (q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)
    if k.element_size() == 1:
        if q.element_size() == 1:
            tensors, k_descale = _widened(tensors, q_descale, k_descale, cu_seqlens_q.shape[0] - 1)
        names, tensors = serving.NARROW_VARLEN, (*tensors, k_descale, v_descale)
    elif q_descale is not None or k_descale is not None or v_descale is not None:
        _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    found = serving.run(
        names,
        tensors,
        (softmax_scale, causal, tuple(window_size), attention_chunk, softcap, num_splits, sm_margin, max_seqlen_q,
         False),
        block_table if page_table is None else page_table,
        s_aux if sinks is None else sinks,
        out,
        return_attn_probs,
        scheduler_metadata,
    )  # fmt: skip
    return serving.without_gradients(found, *tensors[:3])


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    qv: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    cache_seqlens: Optional[Union[int, Tensor]] = None,
    cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    rotary_seqlens: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Optional[Tensor] = None,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    *,
    out: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None,
) -> Any:
    """Attention over a cache, to which k and v, if given, are appended first at cache_seqlens.

    q: (batch, seq_q, heads_q, head_dim), or (total_q, ...) with cu_seqlens_q; k_cache, v_cache: (batch_c, positions,
    heads_kv, head_dim), or with a page table (pages, page size, heads_kv, head_dim); k, v: (batch, seq_new, heads_kv,
    head_dim), or (total_new, ...) with cu_seqlens_k_new. Returns out, or (out, lse) with return_softmax_lse.

    A cache of torch.float8_e4m3fn counts as k_cache * k_descale and v_cache * v_descale, (batch, heads_kv) in fp32, any
    strides; new k and v are divided by them and rounded. q is of 16 bits, or like the cache with q_descale: then out is
    bfloat16.
    """
    if qv is not None:
        _refuse(qv=qv)
    serving = flash_attn._module or _serving()
    descales = serving.NO_DESCALES
    if k_cache.element_size() == 1:
        if q.element_size() == 1:
            if k is not None:
                raise NotImplementedError("k: new keys beside an 8-bit q are not computed: give q and k in 16 bits")
            batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
            (q, *_), k_descale = _widened((q, k_cache), q_descale, k_descale, batch)
        descales = (k_descale, v_descale)
    elif q_descale is not None or k_descale is not None or v_descale is not None:
        _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    return serving.run_cache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table,
        cu_seqlens_q, cu_seqlens_k_new, rotary_seqlens, descales,
        (softmax_scale, causal, tuple(window_size), attention_chunk, softcap, num_splits, sm_margin, max_seqlen_q or 0,
         rotary_interleaved),
        sinks, out, return_softmax_lse, scheduler_metadata,
    )  # fmt: skip


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: Tensor,
    qkv_dtype: Any = None,
    headdim_v: Optional[int] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    page_size: Optional[int] = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
) -> Tensor:
    """The schedule of calls with these lengths, for their `scheduler_metadata`: int32, on the device, of a size that
    depends on the card and the kernel alone. Calls that it does not fit make their own.
    """
    serving = _serving()
    torch = serving.torch
    memory = torch.empty(16, dtype=qkv_dtype or torch.bfloat16, device=cache_seqlens.device)
    width = headdim_v or headdim
    positions = page_size or _LENGTH_MAX
    rows = (_LENGTH_MAX,) if cu_seqlens_q is not None else (batch_size, max_seqlen_q)
    new = max_seqlen_k_new or (0 if cu_seqlens_k_new is None else 1)
    new_rows = (new,) if cu_seqlens_k_new is not None else (batch_size, new)
    tensors = (
        _Shape(memory, (*rows, num_heads_q, headdim)),
        _Shape(memory, (batch_size, positions, num_heads_kv, headdim)),
        _Shape(memory, (batch_size, positions, num_heads_kv, width)),
        cache_seqlens,
        _Shape(memory, (*new_rows, num_heads_kv, headdim)) if new else None,
        _Shape(memory, (*new_rows, num_heads_kv, width)) if new else None,
        None,
        cache_leftpad,
        cu_seqlens_q,
        cu_seqlens_k_new,
        None,
        None,
        None,
        None,
        None,
    )
    softcap = 1.0 if has_softcap else 0.0
    options = serving.Options(
        None, causal, tuple(window_size), attention_chunk, softcap, num_splits, sm_margin, max_seqlen_q, True
    )
    pages = None if page_size is None else _Shape(cache_seqlens, (batch_size, _LENGTH_MAX // positions))
    problem = serving.Problem(serving.CACHE, tensors, options, batch_size, pages)
    return serving.write_schedule(problem, _Shape(memory, (*rows, num_heads_q, width)), memory.device)


#: The library's bound of a length.
_LENGTH_MAX = 1 << 30


class _Shape:
    """What the library asks of a contiguous tensor, of memory that is smaller: nothing is read from it, or written."""

    def __init__(self, memory: Tensor, shape: tuple[int, ...]) -> None:
        strides = [1]
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * length)
        self.memory, self.shape, self.strides = memory, shape, strides
        self.dtype, self.device, self.is_cuda = memory.dtype, memory.device, memory.is_cuda

    def data_ptr(self) -> int:
        return int(self.memory.data_ptr())

    def stride(self, axis: Optional[int] = None) -> Any:
        return self.strides if axis is None else self.strides[axis]

    def get_device(self) -> int:
        return int(self.memory.get_device())

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return 2


def flash_attn_combine(
    out_partial: Tensor, lse_partial: Tensor, out: Optional[Tensor] = None, out_dtype: Any = None
) -> tuple[Tensor, Tensor]:
    """Merge partial results over disjoint keys: out_partial (splits, ..., heads, head_dim) and lse_partial (splits,
    ..., heads) give (out, lse), where lse = ln sum exp(lse_partial) and out the average of out_partial by the weights
    exp(lse_partial - lse).

    Computed by PyTorch's own kernels, since kjit's never leave partial results to their caller.
    """
    lse = lse_partial.float().logsumexp(0)
    weights = (lse_partial.float() - lse).exp().nan_to_num(0.0, 0.0, 0.0)
    merged = (weights.unsqueeze(-1) * out_partial.float()).sum(0).to(out_dtype or out_partial.dtype)
    if out is None:
        return merged, lse
    out.copy_(merged)
    return out, lse
