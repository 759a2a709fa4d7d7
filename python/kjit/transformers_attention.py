"""kjit as an attention implementation of Hugging Face transformers.

    kjit.transformers_attention.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="kjit", dtype=torch.bfloat16)

What the library does not compute (masks, dropout, what it has no kernel for on this GPU) goes to `fallback`, and is
counted; with fallback=None it is a NotImplementedError that says why.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import attention
from .errors import Unsupported

#: How many calls went where: "kjit", or the reason for which the fallback was taken.
counts: Counter[str] = Counter()


def _reason_against(mask: Any, dropout: float, options: dict[str, Any]) -> str:
    """Why this call is not for kjit; "" if it may be."""
    if mask is not None:
        return "attention_mask"
    if dropout:
        return "dropout"
    return next((name for name in ("softcap", "position_bias", "s_aux") if options.get(name) is not None), "")


def _compute(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: Optional[float], causal: bool
) -> torch.Tensor:
    """(batch, heads, seq, head_dim) in memory of any order; the model wants (batch, seq, heads, head_dim) back."""
    if causal:  # without a mask the keys behind the queries are a cache's empty places
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    views = (tensor.transpose(1, 2) for tensor in (query, key, value))
    result: torch.Tensor = attention(*views, scale=scaling, causal=causal)
    return result.contiguous()


def _forward_with(fallback: Optional[Any]) -> Any:
    def forward(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        dropout: float = 0.0,
        scaling: Optional[float] = None,
        is_causal: Optional[bool] = None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        reason = _reason_against(attention_mask, dropout, options)
        # A single query sees every key.
        causal = query.shape[2] > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
        try:
            if not reason:
                result = _compute(query, key, value, scaling, causal)
                counts["kjit"] += 1
                return result, None
        except Unsupported as error:
            reason = str(error)
        if fallback is None:
            raise NotImplementedError(f"{reason}: not computed by kjit here, and there is no fallback")
        counts[reason] += 1
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **options}
        other: tuple[torch.Tensor, None] = fallback(module, query, key, value, attention_mask, **given)
        return other

    return forward


def register(name: str = "kjit", fallback: Optional[str] = "sdpa") -> None:
    """Make `attn_implementation=name` known to transformers."""
    other = None if fallback is None else ALL_ATTENTION_FUNCTIONS[fallback]
    AttentionInterface.register(name, _forward_with(other))
    AttentionMaskInterface.register(name, sdpa_mask)
