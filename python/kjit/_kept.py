"""Blocks that are found once for a mask that comes again, and kept while it lives.

A BlockMask's lists are made once and used by many calls. What kjit finds for its own tiles, from the lists and from the
mask that judges partial blocks, follows from them alone, so that it is kept too: in memory of PyTorch's, for each block
mask and stream. The first call finds its blocks as any other; the second fills the memory; those behind it read it.
Blocks of a text or function that reads no tensor follow from its numbers and from sizes, and are kept likewise.

1. A block mask's state is a kjit_kept_blocks in a tensor of the host's memory, so that a prepared call takes its
   address as it takes those of tensors.
2. Sizes, numbers and addresses are compared by the library. What lies at the addresses is the same where the tensors
   are the same objects, to which the state refers weakly, and their versions, which PyTorch counts, say that nobody
   wrote to them. Tensors without such a counter, those made in inference mode, are taken for written at each call.

Threads: each has its own states.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any, Optional

import torch

from . import _abi

#: Most bytes that are kept for one mask and place; beyond, blocks are found at each call.
_MOST_BYTES = 256 << 20
#: Places of a mask; beyond, its states are made anew.
_MOST_PLACES = 8

_WORDS = ctypes.sizeof(_abi.kjit_kept_blocks) // 8


class _State:
    """Of one mask at one place."""

    __slots__ = ("tensor", "blocks", "memory", "read", "versions")

    def __init__(self) -> None:
        self.tensor = torch.zeros(_WORDS, dtype=torch.int64)
        self.blocks = _abi.kjit_kept_blocks.from_address(self.tensor.data_ptr())
        self.memory: Any = None
        #: Weak, because one of them may be what the state goes with.
        self.read: tuple[Any, ...] = ()
        self.versions: list[int] = []

    def is_stale(self, tensors: tuple[Any, ...]) -> bool:
        """Are these others than the tensors that the blocks were found from, or was one written since?"""
        if len(tensors) != len(self.read):
            return True
        for tensor, known, version in zip(tensors, self.read, self.versions):
            if tensor is None or known is None:
                if tensor is not known:
                    return True
            elif known() is not tensor or tensor._version != version:
                return True
        return False

    def forget(self) -> None:
        self.blocks.filled_for[0] = self.blocks.filled_for[1] = 0

    def grow(self, device: Any) -> None:
        """Take memory for what the last call wanted; without any where there is none, or while a graph is captured,
        whose memory is the graph's."""
        if self.blocks.wanted > _MOST_BYTES or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return
        try:
            self.memory = torch.empty(self.blocks.wanted, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            return
        self.forget()
        self.blocks.data, self.blocks.bytes = self.memory.data_ptr(), self.blocks.wanted


class _OfMask(weakref.ref):  # type: ignore[type-arg]
    """The states of a mask by places; they go with it."""

    __slots__ = ("states",)

    states: dict[Any, _State]


class _Masks(threading.local):
    """By the id of each mask, because one may be a tensor, whose comparison is no bool."""

    def __init__(self) -> None:
        self.known: dict[int, _OfMask] = {}

    def states(self, mask: Any) -> dict[Any, _State]:
        found = self.known.get(id(mask))
        if found is None or found() is not mask:
            known, name = self.known, id(mask)
            found = known[name] = _OfMask(mask, lambda gone: known.get(name) is gone and known.pop(name))
            found.states = {}
        return found.states


_masks = _Masks()


def state_of(mask: Any, device: Any, place: Any, tensors: tuple[Any, ...]) -> Optional[torch.Tensor]:
    """Where a call finds, or leaves, the blocks of this mask; None: they cannot be kept.

    mask: the object that they are kept with: a BlockMask, one of its tensors where nothing else is known of it, or a
    Variant. place: the call's device and stream, and the numbers and sizes by which calls of a variant differ.
    device: where memory for them is taken. tensors: all that the blocks are found from; some may be None.
    """
    try:
        states = _masks.states(mask)
        state = states.get(place)
        if state is None:
            if len(states) >= _MOST_PLACES:
                states.clear()
            state = states[place] = _State()
        if state.is_stale(tensors):
            state.forget()
            state.versions = [0 if tensor is None else tensor._version for tensor in tensors]
            state.read = tuple([None if tensor is None else weakref.ref(tensor) for tensor in tensors])
    except (RuntimeError, TypeError):  # a tensor of inference mode; an object that cannot be referred to weakly
        return None
    blocks = state.blocks
    if blocks.wanted > blocks.bytes:
        state.grow(device)
    return state.tensor
