"""The masks of Hugging Face transformers as functions: nothing of size seq_q × seq_kv is made.

transformers describes a mask by a function mask(batch, head, q, kv) of positions in the sequence, where the queries and
keys of a call begin there, and which keys are padding. An attention implementation may take all of that as an object in
place of a tensor; Mask is that object. A model that looks into it gets the tensor that sdpa would have got.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, cast

import torch
from transformers import masking_utils

from .transformers_inline import is_inline

Function = Callable[..., Any]


class Seen(NamedTuple):
    """What a call of attention is told of its mask: the causal flag, or mask_mod(b, h, q, k), or neither."""

    causal: bool = False
    mask_mod: Optional[Function] = None


def _listed(mask: torch.Tensor) -> Function:
    return lambda b, h, q, k: mask[b, k]


def _run(first: torch.Tensor, end: torch.Tensor) -> Function:
    return lambda b, h, q, k: (k >= first[b]) & (k < end[b])


def _both(one: Function, other: Function) -> Function:
    return lambda b, h, q, k: one(b, h, q, k) & other(b, h, q, k)


def _shifted(function: Function, to_q: Any, to_k: Any) -> Function:
    """`function` of positions, as a function of the rows and columns of a call."""
    return lambda b, h, q, k: function(b, h, q + to_q, k + to_k)


def padding_function(mask: Optional[torch.Tensor], kv_length: int, kv_offset: int) -> Optional[Function]:
    """Which keys count, from a 2-D mask that is true for those that do; None: all of them.

    Padding to the left or to the right leaves one run of keys in each batch entry, which two numbers say, so that
    blocks of keys follow from them. Any other mask is read key by key. This waits for the GPU once, as transformers'
    own mask for sdpa does.
    """
    if mask is None:
        return None
    end = kv_length + kv_offset
    if mask.shape[-1] < end:
        mask = torch.nn.functional.pad(mask, (0, end - mask.shape[-1]))
    if torch.compiler.is_compiling():  # the values are not known then
        return _listed(mask)
    seen = mask[:, kv_offset:end]
    runs = seen[:, :1].sum(-1) + (seen[:, 1:] & ~seen[:, :-1]).sum(-1)
    everything, is_run = torch.stack((seen.all(), (runs <= 1).all())).tolist()
    if everything:
        return None
    if not is_run:
        return _listed(mask)
    first = seen.to(torch.int32).argmax(-1) + kv_offset
    return _run(first, first + seen.sum(-1))


def _with_lengths(given: dict[str, Any]) -> dict[str, Any]:
    """What transformers 5 says of a mask; version 4 gives the queries' positions in their place."""
    positions = given.get("cache_position")
    if "q_length" in given or positions is None:
        return given
    first = positions[0] if torch.compiler.is_compiling() else int(positions[0])
    return {**given, "q_length": positions.shape[0], "q_offset": first, "device": positions.device}


class Mask(masking_utils.BlockMask):  # type: ignore[misc,name-defined]
    """What a model is given in place of a mask.

    It is a BlockMask by name only: transformers takes those for masks that are ready. Whatever else a model asks of it
    is answered by the tensor, which is made then.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        given = _with_lengths(given)
        q_offset, kv_offset = given.get("q_offset", 0), given.get("kv_offset", 0)
        self._given = given
        self._tensor: Optional[torch.Tensor] = None
        self._length = given["kv_length"]
        padding = padding_function(given.get("attention_mask"), self._length, kv_offset)
        function = given.get("mask_function", masking_utils.causal_mask_function)
        if padding is not None:
            function = _both(function, padding)
        if isinstance(q_offset, torch.Tensor) or q_offset or kv_offset:
            function = _shifted(function, q_offset, kv_offset)
        self._function: Function = function
        self._plain = self._find_plain() if padding is None else None

    def _find_plain(self) -> Optional[Seen]:
        """What the skips that the caller allows come to: they promise a causal or full mask and a local size."""
        given = self._given
        local, q_length = given.get("local_size"), given["q_length"]
        q_offset, kv_offset = given.get("q_offset", 0), given.get("kv_offset", 0)
        if local is not None and self._length >= local:
            return None
        if given.get("allow_is_causal_skip", True):
            aligned = not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_offset + self._length
            return Seen(causal=q_length > 1) if aligned else None
        return Seen() if given.get("allow_is_bidirectional_skip", False) else None

    def seen(self, keys: int) -> Seen:
        """For a call with so many keys."""
        if self._plain is not None and keys == self._length:
            return self._plain
        return Seen(mask_mod=self._function)

    def tensor(self) -> torch.Tensor:
        """(batch, 1, q_length, kv_length), true where a key is seen."""
        if self._tensor is not None:
            return self._tensor
        given = {**self._given, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        self._tensor = cast(torch.Tensor, masking_utils.sdpa_mask(**given))  # nothing may be left out of it
        return self._tensor

    def added(self, dtype: torch.dtype) -> torch.Tensor:
        """What an eager implementation adds to its scores: 0, or the least number."""
        tensor = self.tensor()
        return torch.zeros_like(tensor, dtype=dtype).masked_fill_(~tensor, torch.finfo(dtype).min)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._given["batch_size"], 1, self._given["q_length"], self._length

    def to(self, *place: Any, **named: Any) -> Mask:
        """The function reads its tensors where they lie."""
        return self

    def __repr__(self) -> str:
        return f"Mask(shape={self.shape})"

    __str__ = __repr__

    def __getitem__(self, index: Any) -> Any:
        return self.tensor()[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        plain = (value.tensor() if isinstance(value, Mask) else value for value in arguments)
        return function(*plain, **(named or {}))


def mask_interface(**given: Any) -> Any:
    """What AttentionMaskInterface registers: a Mask, or what a model adds whose attention is its own."""
    return masking_utils.eager_mask(**given) if is_inline(given.get("config")) else Mask(given)
