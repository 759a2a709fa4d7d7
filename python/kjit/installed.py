"""kjit under FlashAttention's names, for code that imports `flash_attn` or `flash_attn_interface` itself."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import sys
import types
from collections.abc import Iterable
from typing import Any, Optional

from . import flash_attn

#: The versions of FlashAttention whose signatures these are.
VERSION, THIRD_VERSION = "2.8.3", "3.0.0"


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
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


def index_first_axis(tensor: Any, indices: Any) -> Any:
    return tensor[indices]


def index_put_first_axis(values: Any, indices: Any, first_axis_dim: int) -> Any:
    """A tensor of first_axis_dim rows that has the values at the indices, and zeros elsewhere."""
    out = values.new_zeros((first_axis_dim, *values.shape[1:]))
    out[indices] = values
    return out


def apply_rotary_emb(
    x: Any, cos: Any, sin: Any, interleaved: bool = False, inplace: bool = False, seqlen_offsets: Any = 0,
    cu_seqlens: Any = None, max_seqlen: Optional[int] = None,
) -> Any:  # fmt: skip
    """x with its first 2 * cos.size(1) columns turned by the angles of each row's position, in fp32, by PyTorch.

    x: (batch, seq, heads, size), or with cu_seqlens (rows, heads, size); interleaved: columns 2i and 2i + 1 are a pair,
    else i and i + cos.size(1). A sequence's first row has the position seqlen_offsets, an int or a tensor of one for
    each.
    """
    import torch

    longest = x.shape[-3] if cu_seqlens is None else max_seqlen or 0
    last = longest + (0 if isinstance(seqlen_offsets, torch.Tensor) else seqlen_offsets)
    if last > cos.shape[0]:
        raise ValueError(f"x has rows up to position {last}, and cos {cos.shape[0]} rows: must have one for each")
    rows = torch.arange(x.shape[-3], device=x.device)
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens[1:].contiguous(), rows, right=True)
        rows = rows - cu_seqlens[sequence]
        rows = rows + (seqlen_offsets[sequence] if isinstance(seqlen_offsets, torch.Tensor) else seqlen_offsets)
    elif isinstance(seqlen_offsets, torch.Tensor):
        rows = rows + seqlen_offsets.unsqueeze(-1)
    else:
        rows = rows + seqlen_offsets
    c, s = cos[rows].unsqueeze(-2).float(), sin[rows].unsqueeze(-2).float()
    turned, rest = x[..., : 2 * cos.shape[1]].float(), x[..., 2 * cos.shape[1] :]
    a, b = turned.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else turned.chunk(2, -1)
    pairs = torch.stack((a * c - b * s, a * s + b * c), -1 if interleaved else -2).flatten(-2)
    result = torch.cat((pairs.to(x.dtype), rest), -1)
    return x.copy_(result) if inplace else result


class _Distribution(importlib.metadata.Distribution):
    """What importlib.metadata tells of an installed package: its name, its version, and what is imported of it."""

    def __init__(self, name: str, version: str, module: str) -> None:
        self.texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: by kjit\n",
            "top_level.txt": module,
        }

    def read_text(self, filename: str) -> Optional[str]:
        return self.texts.get(filename)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{path}: kjit's flash_attn has no files")


class _Distributions(importlib.metadata.DistributionFinder):
    """Answers for FlashAttention's packages, since callers such as transformers ask what is installed, and by what
    name, before they import it."""

    known = {
        "flash-attn": _Distribution("flash-attn", VERSION, "flash_attn"),
        "flash-attn-3": _Distribution("flash-attn-3", THIRD_VERSION, "flash_attn_interface"),
    }

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        """No module is found by it: they are in sys.modules."""

    @classmethod
    def find_distributions(cls, context: Any = importlib.metadata.DistributionFinder.Context()) -> Iterable[Any]:
        if context.name is None:
            return list(cls.known.values())
        found = cls.known.get(context.name.replace("_", "-").lower())
        return [] if found is None else [found]


def install_as_flash_attn() -> None:
    """Make `import flash_attn` and `import flash_attn_interface` give kjit's functions, in this process.

    Call it before anything imports them, and before transformers looks for them. An installed FlashAttention is not
    looked at from then on.
    """
    from . import flash_attn_interface

    names = {name: value for name, value in vars(flash_attn).items() if name.startswith(("flash_attn_", "get_sched"))}
    third = {
        name: value
        for name, value in vars(flash_attn_interface).items()
        if name.startswith(("flash_attn_", "get_sched"))
    }
    padding = {
        function.__name__: function for function in (unpad_input, pad_input, index_first_axis, index_put_first_axis)
    }
    package = _module("flash_attn", {**names, "__version__": VERSION}, is_package=True)
    inner = _module("flash_attn.flash_attn_interface", names)
    bert = _module("flash_attn.bert_padding", padding)
    rotary = _module("flash_attn.layers.rotary", {"apply_rotary_emb": apply_rotary_emb})
    layers = _module("flash_attn.layers", {"rotary": rotary}, is_package=True)
    package.__dict__.update(flash_attn_interface=inner, bert_padding=bert, layers=layers)
    sys.modules["flash_attn"] = package
    sys.modules["flash_attn.flash_attn_interface"] = inner
    sys.modules["flash_attn.bert_padding"] = bert
    sys.modules["flash_attn.layers"] = layers
    sys.modules["flash_attn.layers.rotary"] = rotary
    sys.modules["flash_attn_interface"] = _module("flash_attn_interface", {**third, "__version__": THIRD_VERSION})
    if _Distributions not in sys.meta_path:
        sys.meta_path.insert(0, _Distributions)
