"""kjit as an attention implementation of Hugging Face transformers.

    kjit.transformers_attention.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="kjit", dtype=torch.bfloat16)
    kjit.transformers_attention.use(other_model)  # one that is there already

Masks are taken as functions, without a tensor of their size (transformers_mask.py); soft caps, sinks and position
biases are computed with them. What the library does not compute (dropout, weights that are asked for, what it has no
kernel for on this GPU) goes to `fallback`, and is counted; with fallback=None it is a NotImplementedError that says
why.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, Callable, Optional

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

from . import transformers_inline
from ._trace import TraceError
from .attention import attention
from .errors import ParseError
from .transformers_mask import Mask, Seen, mask_interface

#: How many calls went where: "kjit", or the reason for which the fallback was taken.
counts: Counter[str] = Counter()

#: What a fallback by transformers' sdpa refuses or leaves out; the model's own eager function computes it.
_EAGER_ONLY = ("softcap", "position_bias", "s_aux", "output_attentions")

#: The names that register() was called with.
_registered: set[str] = set()


def _reason_against(mask: Any, dropout: float, options: dict[str, Any]) -> str:
    """Why this call is not for kjit; "" if it may be."""
    if dropout:
        return "dropout"
    if isinstance(mask, torch.Tensor) and mask.ndim != 4:
        return f"attention_mask of {mask.ndim} axes"
    return next((name for name in ("output_attentions", "cache") if options.get(name)), "")


def _read(mask: torch.Tensor) -> Callable[..., Any]:
    return lambda b, h, q, k: mask[b, h, q, k]


def _score(softcap: Optional[float], biases: list[torch.Tensor]) -> Optional[Callable[..., Any]]:
    """A cap, then what is added, as models do it."""
    functions: list[Callable[..., Any]] = []
    if softcap is not None:
        functions.append(_capped(float(softcap)))
    functions += [_biased(bias) for bias in biases]
    if len(functions) == 2:
        return _then(*functions)
    return functions[0] if functions else None


def _capped(cap: float) -> Callable[..., Any]:
    return lambda score, b, h, q, k: cap * torch.tanh(score / cap)


def _biased(bias: torch.Tensor) -> Callable[..., Any]:
    return lambda score, b, h, q, k: score + bias[b, h, q, k]


def _then(one: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    return lambda score, b, h, q, k: other(one(score, b, h, q, k), b, h, q, k)


def _options(
    query: torch.Tensor, key: torch.Tensor, mask: Any, softcap: Optional[float], position_bias: Any, sinks: Any
) -> dict[str, Any]:
    """What kjit.attention() is told besides the tensors: plain members where they are enough, functions else."""
    keys = key.shape[2]
    seen = mask.seen(keys) if isinstance(mask, Mask) else Seen()
    biases = [] if position_bias is None else [position_bias[..., :keys]]
    if isinstance(mask, torch.Tensor):
        given = mask[..., :keys]
        if mask.dtype is torch.bool:
            seen = Seen(mask_mod=_read(given.expand(*query.shape[:3], keys)))
        else:
            biases.append(given)
    options: dict[str, Any] = {}
    if sinks is not None:
        options["sinks"] = sinks.to(torch.float32)
    if len(biases) == 2:
        biases = [biases[0] + biases[1]]
    if seen.mask_mod is None:
        options["causal"] = seen.causal
        if softcap is not None:
            options["softcap"] = float(softcap)
        if biases:
            options["bias"] = biases[0]
        return options
    score_mod = _score(softcap, [bias.expand(*query.shape[:3], keys) for bias in biases])
    if score_mod is not None:
        options["score_mod"] = score_mod
    return {**options, "mask_mod": seen.mask_mod}


def _compute(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: Optional[float], options: dict[str, Any]
) -> torch.Tensor:
    """(batch, heads, seq, head_dim) in memory of any order; the model wants (batch, seq, heads, head_dim) back."""
    views = (tensor.transpose(1, 2) for tensor in (query, key, value))
    result: torch.Tensor = attention(*views, scale=scaling, **options)
    return result.contiguous()


def _fall_back(fallback: Any, module: Any, tensors: Any, mask: Any, given: dict[str, Any]) -> Any:
    """The same call by another implementation, with the mask that it takes."""
    function = fallback
    if any(given.get(name) is not None for name in _EAGER_ONLY):
        function = getattr(sys.modules[type(module).__module__], "eager_attention_forward", fallback)
    if isinstance(mask, Mask):
        mask = mask.tensor() if function is fallback else mask.added(tensors[0].dtype)
    return function(module, *tensors, mask, **given)


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
        softcap: Optional[float] = None,
        position_bias: Any = None,
        s_aux: Any = None,
        **options: Any,
    ) -> tuple[torch.Tensor, Any]:
        reason = _reason_against(attention_mask, dropout, options)
        try:
            if not reason:
                wanted = _options(query, key, attention_mask, softcap, position_bias, s_aux)
                keys, values = key, value
                # A single query sees every key.
                if attention_mask is None and query.shape[2] > 1:
                    wanted["causal"] = getattr(module, "is_causal", True) if is_causal is None else is_causal
                    if wanted["causal"]:  # without a mask the keys behind the queries are a cache's empty places
                        keys, values = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
                result = _compute(query, keys, values, scaling, wanted)
                counts["kjit"] += 1
                return result, None
        except (NotImplementedError, TraceError, ParseError) as error:
            reason = str(error)
        if fallback is None:
            raise NotImplementedError(f"{reason}: not computed by kjit here, and there is no fallback")
        counts[reason] += 1
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **options}
        variants = {"softcap": softcap, "position_bias": position_bias, "s_aux": s_aux}
        given |= {name: value for name, value in variants.items() if value is not None}
        other: tuple[torch.Tensor, Any] = _fall_back(fallback, module, (query, key, value), attention_mask, given)
        return other

    return forward


def register(name: str = "kjit", fallback: Optional[str] = "sdpa") -> None:
    """Make `attn_implementation=name` known to transformers."""
    other = None if fallback is None else ALL_ATTENTION_FUNCTIONS[fallback]
    AttentionInterface.register(name, _forward_with(other))
    AttentionMaskInterface.register(name, mask_interface)
    _registered.add(name)


def use(model: PreTrainedModel, name: str = "kjit") -> PreTrainedModel:
    """Compute the attention of a model by the implementation `name`, in all of its parts; returns the model.

    This is model.set_attn_implementation(name) and what that leaves out: transformers 5.15 to 5.19 do not change the
    encoder and the decoder of T5 and its relatives, because these have copies of the model's config. Where a part
    writes its attention out itself (T5 before 5.15) and the name is one of register(), kjit computes that as
    kjit.enable(transformers=True) does, in the whole process until kjit.disable(), and `counts` says how often. Other
    names, "eager" and "sdpa" among them, are given to every part as well. Raises ValueError where transformers does not
    know `name`: call register() first. Not thread-safe: call it while nobody computes with the model.
    """
    if name != "eager" and name not in ALL_ATTENTION_FUNCTIONS.valid_keys():
        raise ValueError(f"attention implementation {name!r}: unknown to transformers; call register({name!r}) first")
    model.set_attn_implementation(name)
    for part in model.modules():
        if not isinstance(part, PreTrainedModel):
            continue
        if transformers_inline.is_inline(part.config) and name in _registered:
            transformers_inline.enable(counts)
        elif part.config._attn_implementation != name:
            part.set_attn_implementation(name)
    return model
