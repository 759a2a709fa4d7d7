"""Tensor maps: what the copy engine of sm_90 and later (TMA) must know of a tensor, as an argument of a kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _abi
from ._arrays import DTYPE_BYTES, DTYPE_NAMES, layout_of
from ._library import call, lib, struct
from .runtime import Runtime, runtime_or_default


def _names(enum: str, prefix: str) -> dict[str, int]:
    return {name.replace(prefix, "", 1).lower(): value for name, value in _abi.ENUMS[enum].items()}


#: "fp16", "tf32", "16u4_align8", …
DTYPES = _names("kjit_map_dtype", "KJIT_MAP_")
#: "none", "32b", "64b", "128b", …
SWIZZLES = _names("kjit_map_swizzle", "KJIT_MAP_SWIZZLE_")
INTERLEAVES = _names("kjit_map_interleave", "KJIT_MAP_INTERLEAVE_")
PROMOTIONS = _names("kjit_map_promotion", "KJIT_MAP_PROMOTION_")

#: A framework's element types as the map's; 8-bit floats are copied as bytes.
_OF_ARRAYS = {
    "uint8": "uint8", "int8": "uint8", "bool": "uint8", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8",
    "int16": "uint16", "uint16": "uint16", "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64",
    "float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16",
}  # fmt: skip


def _number(what: str, name: str, known: dict[str, int]) -> int:
    if name.lower() not in known:
        raise ValueError(f"{what} is {name!r}: must be one of {', '.join(known)}")
    return known[name.lower()]


def _fill(options: Any, member: str, values: Sequence[int]) -> None:
    numbers = getattr(options, member)
    if len(values) > len(numbers):
        raise ValueError(f"{member} has {len(values)} numbers: must be at most {len(numbers)}")
    for index, value in enumerate(values):
        if not 0 <= value < 1 << 63:
            raise ValueError(f"{member}[{index}] is {value}: must not be negative")
        numbers[index] = value


class TensorMap:
    """A tiled tensor map of an array: give it to a kernel for a `const __grid_constant__ CUtensorMap` parameter.

        map = kjit.TensorMap(a, box=(64, 64), swizzle="128b")

    array: an array on a GPU, taken by its shape and strides, its last axis contiguous. box: elements of a copy along
    each axis, in the order of the array's axes, 1 to 256 each. element_strides: every n-th element along an axis.
    dtype: the map's own type where it is not the array's, as "tf32" for a float32 array. swizzle: "none", "32b", "64b",
    "128b", …; interleave: "none", "16b", "32b"; promotion: "none", "64b", "128b", "256b"; nan_fill: what lies outside
    reads as NaN, and not as zero. The map holds the array. Errors name the field of kjit_tensor_map_options, whose axes
    are in the reverse order: axis 0 is the array's last.
    """

    __slots__ = ("_map", "array")

    def __init__(
        self,
        array: Any,
        box: Sequence[int],
        *,
        swizzle: str = "none",
        interleave: str = "none",
        promotion: str = "none",
        nan_fill: bool = False,
        element_strides: Union[None, Sequence[int]] = None,
        dtype: Optional[str] = None,
        runtime: Optional[Runtime] = None,
    ) -> None:
        layout = layout_of(array)
        if layout.dtype is None:
            raise TypeError(f"{type(array).__name__}: a tensor map of its element type cannot be made")
        if len(box) != len(layout.shape):
            raise ValueError(f"box has {len(box)} numbers: must have {len(layout.shape)}, as the array has axes")
        if layout.strides and layout.strides[-1] != 1:
            raise ValueError(f"the array's last stride is {layout.strides[-1]}: must be 1")
        name = DTYPE_NAMES[layout.dtype]
        if dtype is None and name not in _OF_ARRAYS:
            raise TypeError(f"an array of {name}: a tensor map of its element type cannot be made")
        options = struct(
            _abi.kjit_tensor_map_options,
            address=layout.address,
            rank=len(layout.shape),
            dtype=_number("dtype", dtype or _OF_ARRAYS[name], DTYPES),
            swizzle=_number("swizzle", swizzle, SWIZZLES),
            interleave=_number("interleave", interleave, INTERLEAVES),
            promotion=_number("promotion", promotion, PROMOTIONS),
            nan_fill=int(nan_fill),
        )
        bytes_each = DTYPE_BYTES[layout.dtype]
        _fill(options, "sizes", list(layout.shape)[::-1])
        _fill(options, "strides", [step * bytes_each for step in list(layout.strides)[:-1][::-1]])
        _fill(options, "box", list(box)[::-1])
        _fill(options, "element_strides", list(element_strides or [])[::-1])
        self._map = _abi.kjit_tensor_map()
        #: The array that the map describes.
        self.array = array
        handle = runtime_or_default(runtime).handle
        call(lib.kjit_tensor_map_create, handle, ctypes.byref(options), ctypes.byref(self._map))

    def kjit_bytes(self) -> bytes:
        """The 128 bytes that a kernel takes."""
        return bytes(self._map)
