"""Numbers and bytes as a kernel's parameters: written at an offset of a buffer, in the size that the parameter has."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

Pack = Callable[..., None]

#: By size: the writers of numbers that are not negative, and of negative ones. Each refuses what does not fit.
INTEGERS: dict[int, tuple[Pack, Pack]] = {
    size: (struct.Struct("<" + code.upper()).pack_into, struct.Struct("<" + code).pack_into)
    for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))
}
FLOATS: dict[int, Pack] = {4: struct.Struct("<f").pack_into, 8: struct.Struct("<d").pack_into}
HALF: Pack = struct.Struct("<e").pack_into
POINTER: Pack = INTEGERS[8][0]

POINTER_BYTES = 8


class Scalars:
    """Writes the numbers of an attention variant, each as int32 or fp32."""

    __slots__ = ("kinds", "_names", "_struct")

    def __init__(self, kinds: Mapping[str, str]) -> None:
        """kinds: "int32" or "fp32" of each name, in the order of the values."""
        #: One letter of module struct for each.
        self.kinds = "".join("f" if kind == "fp32" else "i" for kind in kinds.values())
        self._names = tuple(kinds)
        self._struct = struct.Struct("=" + self.kinds)

    def write(self, memory: Any, values: Sequence[Any]) -> None:
        """A value that is no number, or does not fit, is an error that names it."""
        try:
            self._struct.pack_into(memory, 0, *values)
        except (struct.error, OverflowError, TypeError):
            self._refuse(values)
            raise

    def _refuse(self, values: Sequence[Any]) -> None:
        for name, value, kind in zip(self._names, values, self.kinds):
            try:
                struct.pack("=" + kind, value if kind == "f" else operator.index(value))
            except TypeError:
                raise TypeError(f"params[{name!r}] is {value!r}: must be an int or a float") from None
            except (struct.error, OverflowError):
                rule = "-2147483648 to 2147483647" if kind == "i" else "within fp32"
                raise OverflowError(f"params[{name!r}] is {value}: must be {rule}") from None


def put_integer(raw: Any, offset: int, size: int, value: int, signed: Optional[bool] = None) -> None:
    """signed None: whatever fits the size as signed or as unsigned number."""
    writers = INTEGERS.get(size)
    if writers is None:
        raise TypeError(f"the number {value} for a parameter of {size} bytes: must be an array's, or {size} bytes")
    low = 0 if signed is False else -(1 << (8 * size - 1))
    high = (1 << (8 * size - (signed is True))) - 1
    if not low <= value <= high:
        raise OverflowError(f"{value}: must be {low} to {high}, to fit the parameter's {size} bytes")
    writers[value < 0](raw, offset, value)


def put_float(raw: Any, offset: int, size: int, value: float) -> None:
    write = FLOATS.get(size)
    if write is None:
        how = "numpy.float16(x), or its bytes" if size == 2 else f"{size} bytes"
        raise TypeError(f"the number {value} for a parameter of {size} bytes: must be {how}")
    try:
        write(raw, offset, value)
    except OverflowError:
        raise OverflowError(f"{value}: beyond the range of float, which the parameter's {size} bytes hold") from None


def put_bytes(raw: Any, offset: int, size: int, content: bytes, what: str) -> None:
    if len(content) != size:
        raise TypeError(f"{what} of {len(content)} bytes: must be {size} bytes, as the parameter is")
    raw[offset : offset + size] = content


def put(raw: Any, offset: int, size: int, value: Any) -> None:
    """Anything but an array: int, bool, float, complex, None, NumPy scalars, bytes, ctypes values and structs."""
    if isinstance(value, int):  # bool too
        put_integer(raw, offset, size, value)
    elif isinstance(value, float) and type(value).__module__ != "numpy":
        put_float(raw, offset, size, value)
    elif isinstance(value, complex) and type(value).__module__ != "numpy" and size in (8, 16):
        for part, at in ((value.real, offset), (value.imag, offset + size // 2)):
            put_float(raw, at, size // 2, part)
    elif value is None:
        if size != POINTER_BYTES:
            raise TypeError(f"None for a parameter of {size} bytes: only a pointer can be null")
        POINTER(raw, offset, 0)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        put_bytes(raw, offset, size, bytes(value), type(value).__name__)
    elif isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)):
        put_bytes(raw, offset, size, bytes(value), type(value).__name__)
    elif is_numpy_scalar(value):
        put_bytes(raw, offset, size, value.tobytes(), type(value).__name__)
    elif hasattr(type(value), "kjit_bytes"):
        put_bytes(raw, offset, size, value.kjit_bytes(), type(value).__name__)
    else:
        raise TypeError(describe(value))


def is_numpy_scalar(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("numpy", "ml_dtypes") and getattr(value, "shape", None) == ()


def describe(value: Any) -> str:
    name = type(value).__name__
    if hasattr(value, "__array_interface__"):
        return f"{name} in host memory: must be an array on the GPU, or a NumPy scalar"
    return f"{name}: must be an array on the GPU, a number, bytes, a ctypes value, a kjit.TensorMap or None"


def bfloat16_bits(value: float) -> int:
    """The nearest bfloat16, ties to even."""
    bits: int
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:
        return (bits >> 16) | 0x40
    return int((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
