"""Attention from Python on the emulator of tests/emulator: what arrays hold, and what comes out. No GPU."""

import ctypes
import math
import os
import random
import struct
import sys
import unittest

import harness
import kjit
from arrays import Array
from kjit import _cuda

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])


def device_array(shape, values):
    """An fp16 array in the emulated device's memory, which this process reaches too."""
    content = struct.pack(f"{len(values)}e", *values)
    address = ctypes.c_uint64()
    assert DRIVER.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(Array.OFFSET + len(content))) == 0
    start = address.value + Array.OFFSET
    ctypes.memmove(start, content, len(content))
    array = Array(*shape, data=address.value)
    array.read = lambda: struct.unpack(f"{len(values)}e", ctypes.string_at(start, len(content)))
    return array


def softmax(scores):
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


class Emulated(unittest.TestCase):
    """Batch 1, two heads of queries on one of keys, seven rows on nine keys, head size 64."""

    ROWS, KEYS, HEADS, SIZE = 7, 9, 2, 64

    def setUp(self):
        pick = random.Random(3)
        shapes = ((1, self.ROWS, self.HEADS, self.SIZE), (1, self.KEYS, 1, self.SIZE), (1, self.KEYS, 1, self.SIZE))
        with _cuda.device(0):
            values = [[pick.gauss(0, 1) for _ in range(math.prod(shape))] for shape in shapes]
            self.arrays = [device_array(shape, each) for shape, each in zip(shapes, values)]
            self.out = device_array(shapes[0], [math.nan] * math.prod(shapes[0]))
        self.q, self.k, self.v = (array.read() for array in self.arrays)  # as fp16 holds them

    def exact(self, scale, causal):
        """The output in the order of memory, in float64."""
        size, found = self.SIZE, []
        for row in range(self.ROWS):
            last = row + self.KEYS - self.ROWS if causal else self.KEYS - 1
            for head in range(self.HEADS):
                start = (row * self.HEADS + head) * size
                query = self.q[start : start + size]
                scores = [
                    scale * sum(a * b for a, b in zip(query, self.k[key * size : (key + 1) * size]))
                    for key in range(last + 1)
                ]
                weights = softmax(scores)
                found += [
                    sum(weight * self.v[key * size + column] for key, weight in enumerate(weights))
                    for column in range(size)
                ]
        return found

    def check(self, scale=None, causal=False, **options):
        result = kjit.attention(*self.arrays, out=self.out, scale=scale, causal=causal, **options)
        self.assertIs(result, self.out)
        exact = self.exact(scale or self.SIZE**-0.5, causal)
        for found, right in zip(self.out.read(), exact):
            self.assertAlmostEqual(found, right, delta=4e-3)  # two roundings to fp16 of values about 2

    def test_attention__is_right(self):
        self.check()

    def test_attention__with_scale_and_causal_mask_is_right(self):
        self.check(scale=0.25, causal=True)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
