"""kjit under FlashAttention's names, for code that imports `flash_attn` or `flash_attn_interface` itself."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

from . import flash_attn

#: The version of FlashAttention whose signatures these are.
VERSION = "2.8.3"


def _module(name: str, names: dict[str, Any], is_package: bool = False) -> types.ModuleType:
    module = types.ModuleType(name, "kjit, by FlashAttention's names")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=is_package)
    module.__dict__.update(names)
    if is_package:
        module.__path__ = []
    return module


def unpad_input(hidden_states: Any, attention_mask: Any, unused_mask: Any = None) -> tuple[Any, ...]:
    """(batch, seq, ...) and a mask of what counts: the rows that count, their indices, cu_seqlens, the longest length,
    and each sequence's."""
    import torch

    wanted = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = wanted.sum(dim=-1, dtype=torch.int32)
    indices = wanted.flatten().nonzero(as_tuple=False).flatten()
    offsets = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = hidden_states.flatten(0, 1)[indices]
    return rows, indices, offsets, int(lengths.max()), attention_mask.sum(dim=-1, dtype=torch.int32)


def pad_input(hidden_states: Any, indices: Any, batch: int, seqlen: int) -> Any:
    """The reverse: rows to their places in (batch, seqlen, ...), zeros elsewhere."""
    out = hidden_states.new_zeros((batch * seqlen, *hidden_states.shape[1:]))
    out[indices] = hidden_states
    return out.unflatten(0, (batch, seqlen))


def index_first_axis(tensor: Any, indices: Any) -> Any:
    return tensor[indices]


def install_as_flash_attn() -> None:
    """Make `import flash_attn` and `import flash_attn_interface` give kjit's functions, in this process.

    Call it before anything imports them. An installed FlashAttention is not looked at from then on.
    """
    from . import flash_attn_interface

    names = {name: value for name, value in vars(flash_attn).items() if name.startswith(("flash_attn_", "get_sched"))}
    third = {
        name: value
        for name, value in vars(flash_attn_interface).items()
        if name.startswith(("flash_attn_", "get_sched"))
    }
    padding = {"unpad_input": unpad_input, "pad_input": pad_input, "index_first_axis": index_first_axis}
    package = _module("flash_attn", {**names, "__version__": VERSION}, is_package=True)
    inner = _module("flash_attn.flash_attn_interface", names)
    bert = _module("flash_attn.bert_padding", padding)
    package.__dict__.update(flash_attn_interface=inner, bert_padding=bert)
    sys.modules["flash_attn"] = package
    sys.modules["flash_attn.flash_attn_interface"] = inner
    sys.modules["flash_attn.bert_padding"] = bert
    sys.modules["flash_attn_interface"] = _module("flash_attn_interface", {**third, "__version__": "3.0.0"})
