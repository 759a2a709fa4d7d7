"""Arrays that are known by DLPack alone: their memory is said to be a GPU's, and nobody reads it."""

import ctypes
import itertools

from kjit import _dlpack

FLOAT, BFLOAT = 2, 4  # DLPack's type codes
_GPU, _HOST = 2, 1


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", _dlpack._DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _dlpack._DLTensor),
    ]


#: Where the arrays are said to lie: each in a MiB of its own.
_addresses = itertools.count(1 << 30, 1 << 20)

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Array:
    """Contiguous unless strides are given; 16-bit floats unless told. Begins OFFSET bytes behind `data`."""

    OFFSET = 32

    def __init__(self, *shape, strides=None, code=FLOAT, bits=16, device=0, host=False, name=b"dltensor", data=None):
        self.shape, self.dtype = shape, "float16"
        self.asked = []  # the streams that __dlpack__ was called with
        self._device = (_HOST if host else _GPU, device)
        self._name, self._holder = name, Versioned() if name == b"dltensor_versioned" else Managed()
        self._lengths = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        tensor = self._holder.tensor
        tensor.data, tensor.ndim = data or next(_addresses), len(shape)
        tensor.device_type, tensor.device_id = self._device
        tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset = code, bits, 1, self.OFFSET
        tensor.shape = self._lengths
        if strides:
            tensor.strides = self._strides

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return _new(ctypes.addressof(self._holder), self._name, None)

    def __dlpack_device__(self):
        return self._device


class InterfaceArray:
    """An array that is known by __cuda_array_interface__ alone; one-dimensional."""

    def __init__(self, count=64, dtype="float32", bytes_each=4, data=None, stream=None):
        self.shape, self.dtype = (count,), dtype
        self.data = data or next(_addresses)
        kind = "f" if dtype.startswith("float") else "i"
        self.__cuda_array_interface__ = {
            "shape": self.shape, "typestr": f"<{kind}{bytes_each}", "data": (self.data, False), "version": 3,
            "strides": None, "stream": stream,
        }  # fmt: skip
