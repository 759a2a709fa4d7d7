"""Prepared calls of the library on PyTorch tensors: what tells one call from another, and running one again.

A call is prepared once for tensors of one signature, on one thread. To run it again the tensors' addresses are written
into its arguments, and the library's function is called on the current stream. The extension module _native does both
in C, where it reads tensors by DLPack's exchange table; without it (_native_part.py) the same is done in Python.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

import torch

from . import _abi
from ._library import raise_error, untyped
from ._native_part import address_of, native

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


def find_in_python(calls: dict[Any, Any], head: Any, tensors: tuple[Any, ...]) -> Any:
    """What `calls` has under the signature; None: nothing."""
    return calls.get(signature_in_python(head, tensors))


class CallInPython:
    """_native's Call: see call_new() in python/native/call.c."""

    __slots__ = ("_function", "_arguments", "_stream", "_cells", "_stream_of", "_device", "_kept")

    def __init__(
        self,
        function: Any,
        pointers: tuple[int, ...],
        places: tuple[int, ...],
        stream_of: Optional[Callable[[int], int]],
        device: int,
        error: int,
        kept: Any,
    ) -> None:
        self._function, self._stream = function, ctypes.c_void_p()
        self._arguments = (*map(ctypes.c_void_p, pointers), self._stream, ctypes.c_void_p(error))
        self._cells = [ctypes.c_uint64.from_address(place) if place else None for place in places]
        self._stream_of, self._device, self._kept = stream_of, device, kept

    def run(self, tensors: tuple[Any, ...]) -> int:
        """On the current stream, with the addresses of these; the status."""
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


if native is None:
    signature, find = signature_in_python, find_in_python
else:
    signature, find = native.signature, native.find
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        native.configure_tensors(torch.Tensor.__dlpack_c_exchange_api__, torch.Tensor, torch.nn.Parameter)


def elsewhere(device: int) -> bool:
    """Is another device than the tensors' current? Asked only of a call that failed: the library notices."""
    return device >= 0 and torch.cuda.current_device() != device


class Launch:
    """A function of the library that takes `pointers`, a stream and a kjit_error, for tensors of one signature.

    places: for each of the tensors that run() gets, the address that its own is written to; 0: none. run(tensors)
    returns 0, or another number after which failed() is to be called, with nothing done in between. `kept` lives as
    long as this does.
    """

    __slots__ = ("run", "on", "_device", "_error")

    def __init__(
        self,
        name: str,
        pointers: tuple[int, ...],
        places: tuple[int, ...],
        stream_of: Optional[Callable[[int], int]],
        device: int,
        kept: Any,
    ) -> None:
        self._device, self._error = device, _abi.kjit_error()
        function, held = untyped(name), (kept, self._error)
        kind: Any = CallInPython if native is None else native.Call
        call = kind(
            function if native is None else address_of(function),
            pointers, places, stream_of if device >= 0 else None, device, ctypes.addressof(self._error), held,
        )  # fmt: skip
        self.run, self.on = call.run, call.on

    def failed(self) -> None:
        """Once more on the tensors' device where another was current; raises what went wrong."""
        if elsewhere(self._device):
            with torch.cuda.device(self._device):
                if not self.on(None):
                    return
        raise_error(self._error)
