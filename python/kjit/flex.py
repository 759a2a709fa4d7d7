"""FlexAttention's function by its signature: `from kjit import flex_attention`.

The functions are traced at each call and compiled into kjit's kernels; no block mask is needed. A BlockMask's lists are
honoured, also where they say more than its mask_mod.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from .attention import attention

#: A block mask that stands for "no mask": one block of this many rows and keys.
_EVERYTHING = 1 << 30


class AuxOutput(NamedTuple):
    """What return_aux asks for, by PyTorch's names; None: not asked for."""

    lse: Any = None
    max_scores: Any = None


def _mask_of(block_mask: Any) -> tuple[Optional[Callable[..., Any]], Any]:
    """The mask function of a block mask, and its lists where they may say more than the function."""
    if block_mask is None:
        return None, None
    if not callable(getattr(block_mask, "mask_mod", None)):
        raise TypeError(f"block_mask is a {type(block_mask).__name__}: must be a BlockMask, or None")
    if getattr(block_mask.mask_mod, "__name__", "") == "noop_mask":
        sizes = block_mask.BLOCK_SIZE
        return None, None if min(sizes) >= _EVERYTHING else block_mask
    return block_mask.mask_mod, block_mask


def _without_keeping(block_mask: Any) -> Any:
    from ._torch_variant import Lists

    return Lists.of(block_mask, keeps=False)


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Optional[Callable[..., Any]] = None,
    block_mask: Any = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Optional[dict[str, Any]] = None,
    *,
    return_aux: Any = None,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention: tensors (batch, heads, seq, columns).

    score_mod(score, b, h, q_idx, kv_idx) gives a score, block_mask.mask_mod(b, h, q_idx, kv_idx) a condition, true
    where the key is seen. kernel_options={"BLOCKS": "mask"} says that the block mask's lists follow from its mask_mod,
    as create_block_mask() makes them, so that kjit may find the blocks by itself; {"BLOCKS": "anew"} that the lists, or
    what mask_mod reads, may have been written to where PyTorch does not see it, so that nothing is kept of them.
    Returns the output; with return_lse (output, lse); with return_aux (output, AuxOutput), lse in natural logarithms.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not hasattr(tensor, "ndim"):
            raise TypeError(f"{name} is a {type(tensor).__name__}: must be a tensor")
    if query.ndim != 4 or key.ndim != 4:
        raise ValueError("query, key and value have four axes: (batch, heads, seq, columns)")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"query has {query.shape[1]} heads and key {key.shape[1]}: with enable_gqa=True groups of query heads "
            "share one of key"
        )
    mask_mod, lists = _mask_of(block_mask)
    found = kernel_options.get("BLOCKS") if kernel_options else None
    if found == "mask":
        lists = None
    elif found == "anew":
        lists = None if lists is None else _without_keeping(lists)
    elif found is not None:
        raise ValueError(f"kernel_options: BLOCKS is {found!r}: must be 'mask' or 'anew'")
    if return_aux is not None and getattr(return_aux, "max_scores", False):
        raise NotImplementedError("return_aux.max_scores: kjit does not give the greatest score of a row")
    wants_lse = return_lse or bool(return_aux is not None and return_aux.lse)
    result = attention(
        query,
        key,
        value,
        scale=scale,
        layout="bhsd",
        return_lse=wants_lse,
        score_mod=score_mod,
        mask_mod=mask_mod,
        blocks=lists,
    )
    out, lse = result if wants_lse else (result, None)
    if return_aux is not None:
        return out, AuxOutput(lse)
    return (out, lse) if return_lse else out
