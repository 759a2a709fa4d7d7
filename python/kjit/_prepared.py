"""Prepared calls of the library on PyTorch tensors: what tells one call from another, and running one again.

A call is prepared once for tensors of one signature, on one thread. launch() finds it again, makes the tensors of the
result, writes addresses and numbers into the call's arguments, and calls the library's function on the current stream.
The extension module _native does this in C, where it reads tensors by DLPack's exchange table; without it
(_native_part.py) the same is done in Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from typing import Any, Callable, NamedTuple, Optional

import torch

from . import _abi
from ._library import raise_error, untyped
from ._native_part import address_of, native
from ._values import Scalars

#: Prepared calls kept by each thread: more than one model's shapes, and a bound for those that never come back.
CALLS_MAX = 1024

# The stream of a device as a number, without an object for it; as public function where the private one is gone.
raw_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
)


def signature_in_python(head: Any, tensors: tuple[Any, ...]) -> Any:
    """What tells calls apart: `head`, and of each tensor shape, strides, dtype and device, None for None."""
    signature = [head]
    add = signature.append
    for tensor in tensors:
        if tensor is None:
            add(None)
        else:
            add(tensor.shape)
            add(tensor.stride())
            add(tensor.dtype)
            add(tensor.get_device())
    return tuple(signature)


def _empty_by_dispatcher(shape: Any, strides: Any, dtype: Any, device: Any) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def maker_of(tensor: Any) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """A function and arguments that make a tensor like this one; on a GPU, on the device that is current.

    PyTorch's own compiled code makes its tensors by the first, which takes a third of what torch.empty_like() does.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    make = getattr(guards, f"_empty_strided_{tensor.device.type}", None)
    known = tuple(tensor.shape), tensor.stride(), tensor.dtype
    return (_empty_by_dispatcher, (*known, tensor.device)) if make is None else (make, known)


class CallInPython:
    """_native's Call: see call_new() in python/native/call.c."""

    __slots__ = (
        "_function", "_arguments", "_stream", "_cells", "_stream_of", "_device", "_kinds", "_numbers", "_failed",
        "_unless", "kept", "makes", "first",
    )  # fmt: skip

    def __init__(
        self,
        function: Any,
        pointers: tuple[int, ...],
        places: tuple[int, ...],
        stream_of: Optional[Callable[[int], int]],
        device: int,
        error: int,
        kept: Any,
        makes: tuple[Any, ...],
        first: int,
        kinds: Optional[bytes],
        numbers: int,
        failed: Callable[..., None],
        unless: Optional[Callable[[], bool]],
    ) -> None:
        self._function, self._stream = function, ctypes.c_void_p()
        self._arguments = (*map(ctypes.c_void_p, pointers), self._stream, ctypes.c_void_p(error))
        self._cells = [ctypes.c_uint64.from_address(place) if place else None for place in places]
        self._stream_of, self._device, self._failed, self._unless = stream_of, device, failed, unless
        self._kinds = None if kinds is None else struct.Struct("=" + kinds.decode())
        self._numbers: Any = None if kinds is None else (ctypes.c_int32 * len(kinds)).from_address(numbers)
        self.kept, self.makes, self.first = kept, makes, first

    def run(self, tensors: tuple[Any, ...]) -> int:
        """On the current stream, with the addresses of these, those that are made last; the status."""
        for cell, tensor in zip(self._cells, tensors):
            if cell is not None and tensor is not None:
                cell.value = tensor.data_ptr()
        return self.on(None)

    def on(self, stream: Optional[int]) -> int:
        """With the addresses that were written last, on a stream or None; the status."""
        if stream is None:
            stream = 0 if self._stream_of is None else self._stream_of(self._device)
        self._stream.value = stream
        status: int = self._function(*self._arguments)
        return status

    def launch(self, tensors: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        """Steps 2 to 5 of launch(); None: the call is left to launch_slowly()."""
        if self._unless is not None and self._unless():
            return None
        made = tuple([function(*arguments) for function, arguments in self.makes])
        if any(tensor.get_device() != self._device for tensor in made):
            return None
        if self._kinds is not None:
            try:
                self._kinds.pack_into(self._numbers, 0, *values)
            except (struct.error, OverflowError):
                return None
        if self.run((*tensors, *made)):
            self._failed(self, None)
        return _result(self.first, tensors, made)


def launch_in_python(calls: dict[Any, Any], head: Any, tensors: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """Run the call that `calls` has under the signature of `head` and `tensors`, with these numbers.

    The tensor or the tensors of the result; None: there is no such call, or it is left to launch_slowly().
    """
    found = calls.get(signature_in_python(head, tensors))
    return found.launch(tensors, values) if type(found) is CallInPython else None


def _result(first: int, tensors: tuple[Any, ...], made: tuple[Any, ...]) -> Any:
    whole = made if first < 0 else (tensors[first], *made)
    return whole[0] if len(whole) == 1 else whole


if native is None:
    signature, launch = signature_in_python, launch_in_python
else:
    signature, launch = native.signature, native.launch
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        native.configure_tensors(torch.Tensor.__dlpack_c_exchange_api__, torch.Tensor, torch.nn.Parameter)


class Numbers(NamedTuple):
    """Where a call's numbers are written, int32 or fp32, and how."""

    memory: Any
    scalars: Scalars


class Shared(NamedTuple):
    """What each run of a call has in common."""

    function: str
    pointers: tuple[int, ...]
    device: int
    stream_of: Optional[Callable[[int], int]]
    kept: Any
    numbers: Optional[Numbers] = None
    unless: Optional[Callable[[], bool]] = None


class Kept(NamedTuple):
    """What a call holds: its Shared, and the kjit_error that the library fills."""

    shared: Shared
    error: Any


def make_call(shared: Shared, places: tuple[int, ...], own: int, out: tuple[int, Any], lse: tuple[int, Any]) -> Any:
    """A function of the library that takes pointers, a stream and a kjit_error, for tensors of one signature.

    places: for each of the tensors that launch() gets, the address that its own is written to; 0: none. own: which of
    them is the output, -1: the call makes it. out, lse: where the addresses of output and log-sum-exp are written, and
    tensors like those that the call makes; for lse None: there is none.
    """
    error = _abi.kjit_error()
    function, kept, numbers = untyped(shared.function), Kept(shared, error), shared.numbers
    made = [each for each in (out if own < 0 else (0, None), lse) if each[1] is not None]
    makes = tuple([maker_of(tensor) for _, tensor in made])
    kinds = None if numbers is None else numbers.scalars.kinds.encode()
    memory = 0 if numbers is None else ctypes.addressof(numbers.memory)
    kind: Any = CallInPython if native is None else native.Call
    return kind(
        function if native is None else address_of(function), shared.pointers,
        (*places, *[place for place, _ in made]), shared.stream_of if shared.device >= 0 else None, shared.device,
        ctypes.addressof(error), kept, makes, own, kinds, memory, _failed, shared.unless,
    )  # fmt: skip


def elsewhere(device: int) -> bool:
    """Is another device than the tensors' current? Asked only of a call that failed: the library notices."""
    return device >= 0 and torch.cuda.current_device() != device


def _failed(call: Any, stream: Optional[int]) -> None:
    """Once more on the tensors' device where another was current; raises what went wrong."""
    shared, error = call.kept
    if elsewhere(shared.device):
        with torch.cuda.device(shared.device):
            if not call.on(stream):
                return
    raise_error(error)


def launch_slowly(call: Any, tensors: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """What launch() leaves: on another device than the current one, or with numbers that cannot be written."""
    shared = call.kept.shared
    with torch.cuda.device(shared.device) if shared.device >= 0 else contextlib.nullcontext():
        made = tuple([function(*arguments) for function, arguments in call.makes])
        if shared.numbers is not None:
            shared.numbers.scalars.write(shared.numbers.memory, values)
        if call.run((*tensors, *made)):
            _failed(call, None)
    return _result(call.first, tensors, made)
