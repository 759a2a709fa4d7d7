"""kjit as an attention implementation of Hugging Face transformers.

    kjit.transformers_attention.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="kjit", dtype=torch.bfloat16)

What the library does not compute (masks, causal prefill until the library has it, dropout) goes to `fallback`, and is
counted; with fallback=None it is a NotImplementedError that says why.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from . import _arguments
from .attention import attention

#: How many calls went where: "kjit", or the reason for which the fallback was taken.
counts: Counter[str] = Counter()


def _reason_against(
    module: Any, query: torch.Tensor, mask: Any, dropout: float, is_causal: Optional[bool], options: dict[str, Any]
) -> str:
    """Why this call is not for kjit; "" if it is. A single query sees every key, so there causal means nothing."""
    if mask is not None:
        return "attention_mask"
    if dropout:
        return "dropout"
    for name in ("softcap", "position_bias", "s_aux"):
        if options.get(name) is not None:
            return name
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return "causal" if causal and query.shape[2] > 1 and not _arguments.CAUSAL else ""


def _repeat_heads(tensor: torch.Tensor, times: int) -> torch.Tensor:
    """(batch, heads, seq, head_dim) with each head as often as queries share it."""
    return tensor if times == 1 or _arguments.GROUPED_HEADS else tensor.repeat_interleave(times, dim=1)


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
        reason = _reason_against(module, query, attention_mask, dropout, is_causal, options)
        counts[reason or "kjit"] += 1
        if reason:
            if fallback is None:
                raise NotImplementedError(f"{reason}: the library does not compute this yet, and there is no fallback")
            result: tuple[torch.Tensor, None] = fallback(
                module, query, key, value, attention_mask,
                dropout=dropout, scaling=scaling, is_causal=is_causal, **options,
            )  # fmt: skip
            return result
        groups = getattr(module, "num_key_value_groups", 1)
        key, value = _repeat_heads(key, groups), _repeat_heads(value, groups)
        causal = _arguments.CAUSAL and query.shape[2] > 1 and getattr(module, "is_causal", True)
        # (batch, heads, seq, head_dim) in memory of any order; the model wants (batch, seq, heads, head_dim) back.
        views = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return attention(*views, scale=scaling, causal=causal).contiguous(), None

    return forward


def register(name: str = "kjit", fallback: Optional[str] = "sdpa") -> None:
    """Make `attn_implementation=name` known to transformers."""
    other = None if fallback is None else ALL_ATTENTION_FUNCTIONS[fallback]
    AttentionInterface.register(name, _forward_with(other))
    AttentionMaskInterface.register(name, sdpa_mask)
