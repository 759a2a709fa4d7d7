"""Attention on arrays of other frameworks, through DLPack and without copies: CuPy, JAX, and whoever brings `out`."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional

from . import _abi, _cuda
from ._arguments import LAYOUTS, View, build, require_layout
from ._library import call, lib
from .runtime import Config, as_config, default_runtime

_CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DTYPES = {(2, 16): _abi.KJIT_FP16, (4, 16): _abi.KJIT_BF16, (2, 32): _abi.KJIT_FP32}  # by type code and bits

#: The legacy default stream: 1 in DLPack's terms, 0 in the driver's.
_DLPACK_DEFAULT_STREAM = 1


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, which is a stable ABI."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


#: Where the DLTensor stands in what a capsule of this name holds: behind version, context, deleter and flags.
_CAPSULES = {b"dltensor": 0, b"dltensor_versioned": 32}

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _compact_strides(shape: list[int]) -> list[int]:
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    return strides


def tensor_of(capsule: Any) -> _DLTensor:
    """The DLTensor in a capsule, which must outlive it."""
    for name, offset in _CAPSULES.items():
        if _is_valid(capsule, name):
            return _DLTensor.from_address(_get_pointer(capsule, name) + offset)
    raise TypeError("__dlpack__() returned no DLPack capsule that is known here")


def _view(capsule: Any) -> View:
    """What a capsule describes. It is only read: its own destructor gives the tensor back."""
    tensor = tensor_of(capsule)
    shape = tensor.shape[: tensor.ndim]
    return View(
        (tensor.data or 0) + tensor.byte_offset,
        _DTYPES.get((tensor.code, tensor.bits), _abi.KJIT_DTYPE_NONE) if tensor.lanes == 1 else _abi.KJIT_DTYPE_NONE,
        tensor.device_id if tensor.device_type in _CUDA_DEVICES else _abi.KJIT_DEVICE_HOST,
        shape,
        tensor.strides[: tensor.ndim] if tensor.strides else _compact_strides(shape),
    )


class _Framework:
    """Arrays of nobody in particular: on the default stream, and waited for."""

    stream = 0
    waits = True
    allocates = False  # whether empty() works
    writable = True  # whether an array of the caller's may be written

    def capsule(self, array: Any) -> Any:
        return array.__dlpack__(stream=_DLPACK_DEFAULT_STREAM)

    def empty(self, array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array beside this one."""
        raise NotImplementedError


class _CuPy(_Framework):
    """On CuPy's current stream, without waiting."""

    waits = False
    allocates = True

    def __init__(self) -> None:
        self.cupy = sys.modules["cupy"]
        self.stream = self.cupy.cuda.get_current_stream().ptr

    def capsule(self, array: Any) -> Any:
        return array.__dlpack__(stream=self.stream or _DLPACK_DEFAULT_STREAM)

    def empty(self, array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.cupy.empty(shape, dtype)


class _Jax(_Framework):
    """JAX orders work by its own streams only, so the result is waited for before JAX sees it.

    Its arrays are immutable to others: what is written is a fresh one that nobody has seen.
    """

    allocates = True
    writable = False

    def __init__(self, array: Any) -> None:
        self.jax = sys.modules["jax"]
        if isinstance(array, self.jax.core.Tracer):
            raise NotImplementedError("kjit.attention cannot be traced by jax.jit: call it on arrays")

    def capsule(self, array: Any) -> Any:
        return self.jax.block_until_ready(array).__dlpack__()

    def empty(self, array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.jax.numpy.zeros(shape, dtype, device=array.sharding)


def _require_gpu(array: Any) -> None:
    if array.__dlpack_device__()[0] not in _CUDA_DEVICES:
        raise ValueError(f"{type(array).__name__} in host memory: must be memory of a GPU")


def _framework(array: Any) -> _Framework:
    owner = type(array).__module__.partition(".")[0]
    if owner == "cupy":
        return _CuPy()
    if owner in ("jax", "jaxlib"):
        return _Jax(array)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"q is a {type(array).__name__}: must be a tensor that has __dlpack__()")
    return _Framework()


def attention(
    q: Any,
    k: Any,
    v: Any,
    scale: Optional[float],
    causal: bool,
    layout: str,
    out: Any,
    return_lse: bool,
    config: Optional[Config],
) -> Any:
    require_layout(layout)
    framework = _framework(q)
    for array in (q, k, v):
        _require_gpu(array)
    if not framework.allocates and (out is None or return_lse):
        name = type(q).__name__
        raise TypeError(f"out: must be given for arrays of type {name}, and return_lse is not available")
    if not framework.writable and out is not None:
        raise TypeError("out: JAX's arrays are immutable: take the result")
    lse = None
    if return_lse:
        batch, seq, heads = (q.shape[axis] for axis in LAYOUTS[layout][:3])
        lse = framework.empty(q, (batch, heads, seq), "float32")
    if out is None:
        out = framework.empty(q, (*q.shape[:-1], v.shape[-1]), q.dtype)
    capsules = [framework.capsule(array) for array in (q, k, v, out)]
    lse_capsule = None if lse is None else framework.capsule(lse)
    q_view, k_view, v_view, out_view = (_view(capsule) for capsule in capsules)
    lse_view = None if lse_capsule is None else _view(lse_capsule)
    args = build(q_view, k_view, v_view, out_view, lse_view, scale=scale, causal=causal, layout=layout)
    with _cuda.device(q_view.device):
        kernel = None if config is None else ctypes.byref(as_config(config)._kernel)
        call(
            lib.kjit_attention_forward,
            default_runtime().handle,
            kernel,
            ctypes.byref(args),
            framework.stream,
        )
        if framework.waits:
            _cuda.wait_for_stream(framework.stream)
    return out if lse is None else (out, lse)
