"""Arrays of any framework as a kernel takes them: an address, a device, and the stream on which they are made.

PyTorch, CuPy and JAX are known by their types; every other array by __cuda_array_interface__ or __dlpack__. No
framework is imported here: whoever made an array did that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

from . import _dlpack

#: Element types by the name that frameworks print, as PyTorch's ScalarType numbers, which kjit uses too.
DTYPE_NUMBERS = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "float8_e5m2": 23,
    "float8_e4m3fn": 24,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}
DTYPE_NAMES = {number: name for name, number in DTYPE_NUMBERS.items()}
DTYPE_BYTES = {
    0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 10: 16, 11: 1, 15: 2, 23: 1, 24: 1, 27: 2, 28: 4, 29: 8,
}  # fmt: skip

#: By DLPack's type code and bits.
_DLPACK_NUMBERS = {
    (0, 8): 1, (0, 16): 2, (0, 32): 3, (0, 64): 4, (1, 8): 0, (1, 16): 27, (1, 32): 28, (1, 64): 29,
    (2, 16): 5, (2, 32): 6, (2, 64): 7, (4, 16): 15, (5, 64): 9, (5, 128): 10, (6, 8): 11, (8, 8): 24, (10, 8): 24,
    (12, 8): 23,
}  # fmt: skip

#: The device of an array that does not say it.
UNKNOWN_DEVICE = -1
#: The device of an array in host memory.
HOST = -2


class Layout(NamedTuple):
    """Where an array's elements lie. strides are in elements; dtype is a ScalarType number, None when it has none."""

    address: int
    device: int
    shape: Sequence[int]
    strides: Sequence[int]
    dtype: Optional[int]


class Arrays:
    """The arrays of one framework."""

    #: Whether the host waits for a kernel that was given no stream, because the framework does not order streams.
    waits = False

    #: (address, device) of an array.
    look: Callable[[Any], tuple[int, int]]

    def stream(self, array: Any, device: int) -> int:
        """The stream on which the framework works now."""
        return 0

    def layout(self, array: Any) -> Layout:
        return _dlpack_layout(array.__dlpack__())


# By a framework's own dtype objects, of which there are few.
_numbers: dict[Any, Optional[int]] = {None: None}


def dtype_number(array: Any) -> Optional[int]:
    """The ScalarType number of an array's elements; None when it does not say, or it is one that kjit does not have."""
    dtype = getattr(array, "dtype", None)
    try:
        return _numbers[dtype]
    except KeyError:
        found = _numbers[dtype] = DTYPE_NUMBERS.get(str(dtype).rpartition(".")[2])
        return found


def _dlpack_layout(capsule: Any) -> Layout:
    tensor = _dlpack.tensor_of(capsule)
    shape = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else _dlpack._compact_strides(shape)
    device = tensor.device_id if tensor.device_type in _dlpack._CUDA_DEVICES else HOST
    dtype = _DLPACK_NUMBERS.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return Layout((tensor.data or 0) + tensor.byte_offset, device, shape, strides, dtype)


class _Torch(Arrays):
    """On PyTorch's current stream of the tensor's device."""

    def __init__(self) -> None:
        torch = self.torch = sys.modules["torch"]
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.raw_stream = raw or (lambda device: torch.cuda.current_stream(device).cuda_stream)

    def look(self, array: Any) -> tuple[int, int]:
        device = array.get_device()
        return array.data_ptr(), device if device >= 0 else HOST

    def stream(self, array: Any, device: int) -> int:
        number: int = self.raw_stream(device)
        return number

    def layout(self, array: Any) -> Layout:
        return Layout(*self.look(array), array.shape, array.stride(), dtype_number(array))


class _CuPy(Arrays):
    """On CuPy's current stream."""

    def __init__(self) -> None:
        self.current = sys.modules["cupy"].cuda.get_current_stream
        #: The current stream's number; CuPy's own modules ask for it without making a Stream.
        backend = sys.modules.get("cupy_backends.cuda.stream")
        self.number: Callable[[], int] = getattr(backend, "get_current_stream_ptr", self._number)

    def _number(self) -> int:
        number: int = self.current().ptr
        return number

    def look(self, array: Any) -> tuple[int, int]:
        return array.data.ptr, array.device.id

    def stream(self, array: Any, device: int) -> int:
        return self.number()

    def layout(self, array: Any) -> Layout:
        strides = [step // array.itemsize for step in array.strides]
        return Layout(*self.look(array), array.shape, strides, dtype_number(array))


class _AnyDlpack(Arrays):
    """On the default stream, and waited for: the array's owner knows nothing of the kernel."""

    waits = True

    def look(self, array: Any) -> tuple[int, int]:
        if array.__dlpack_device__()[0] not in _dlpack._CUDA_DEVICES:
            return 0, HOST
        found = _dlpack_layout(array.__dlpack__(stream=_dlpack._DLPACK_DEFAULT_STREAM))
        return found.address, found.device


class _Jax(_AnyDlpack):
    """JAX orders its own work alone: an array is waited for before the kernel, and the kernel before JAX goes on."""

    def __init__(self) -> None:
        self.jax = sys.modules["jax"]

    def look(self, array: Any) -> tuple[int, int]:
        if isinstance(array, self.jax.core.Tracer):
            raise NotImplementedError("a kernel cannot be traced by jax.jit: launch it on arrays")
        found = _dlpack_layout(self.jax.block_until_ready(array).__dlpack__())
        return found.address, found.device


class _Interface(Arrays):
    """__cuda_array_interface__: on the stream that it names, or else on the default stream."""

    def look(self, array: Any) -> tuple[int, int]:
        return array.__cuda_array_interface__["data"][0], UNKNOWN_DEVICE

    def stream(self, array: Any, device: int) -> int:
        return array.__cuda_array_interface__.get("stream") or 0

    def layout(self, array: Any) -> Layout:
        facts = array.__cuda_array_interface__
        bytes_each = int(facts["typestr"][2:])
        shape, strides = facts["shape"], facts.get("strides")
        steps = [step // bytes_each for step in strides] if strides else _dlpack._compact_strides(list(shape))
        return Layout(facts["data"][0], UNKNOWN_DEVICE, shape, steps, dtype_number(array))


_known: dict[type, Optional[Arrays]] = {}


def arrays_of(array: Any) -> Optional[Arrays]:
    """How this array is read; None for what is no array of a GPU's memory."""
    kind = type(array)
    try:
        return _known[kind]
    except KeyError:
        found = _known[kind] = _find(array)
        return found


def _find(array: Any) -> Optional[Arrays]:
    owner = type(array).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _Torch()
    if owner == "cupy" and hasattr(array, "data"):
        return _CuPy()
    if owner in ("jax", "jaxlib") and hasattr(array, "__dlpack__"):
        return _Jax()
    if owner == "numpy":
        return None
    if hasattr(array, "__cuda_array_interface__"):
        return _Interface()
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _AnyDlpack()
    return None


def layout_of(array: Any) -> Layout:
    """Address, device, shape, strides and element type of an array on a GPU."""
    arrays = arrays_of(array)
    if arrays is None:
        raise TypeError(f"{type(array).__name__}: must be an array on the GPU")
    found = arrays.layout(array)
    if found.device == HOST:
        raise TypeError(f"{type(array).__name__} in host memory: must be an array on the GPU")
    return found


def stream_number(stream: Any) -> int:
    """A stream of any framework as the driver's number: a number, or what PyTorch, CuPy, Numba or cuda.core has."""
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle", "value"):
        number = getattr(stream, name, None)
        if isinstance(number, int):
            return number
        if number is not None and isinstance(getattr(number, "value", None), int):
            return int(number.value)
    if type(stream).__name__ == "c_void_p":
        return 0  # a NULL pointer, whose value is None
    raise TypeError(f"stream is a {type(stream).__name__}: must be a number or a framework's stream")
