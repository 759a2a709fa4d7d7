"""examples/gemm on the emulator of tests/emulator: what its kernels compute beside float64. No GPU."""

import ctypes
import math
import random
import struct
import sys
import unittest

import kjit

import gemm

FP16, BF16 = 5, 15
LIMIT = {FP16: 6e-4, BF16: 4e-3}  # of the relative error: one rounding to 16 bits, and a margin


def to_bits(value, dtype):
    if dtype == FP16:
        return struct.unpack("H", struct.pack("e", value))[0]
    word = struct.unpack("I", struct.pack("f", value))[0]
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16


def from_bits(bits, dtype):
    if dtype == FP16:
        return struct.unpack("e", struct.pack("H", bits))[0]
    return struct.unpack("f", struct.pack("I", bits << 16))[0]


def activation(x, epilogue):
    if gemm.EPILOGUES[epilogue] == "bias_gelu":
        return x * 0.5 * math.erfc(-x / math.sqrt(2))
    if gemm.EPILOGUES[epilogue] == "bias_silu":
        return x / (1 + math.exp(-x))
    return x


class Matrix:
    """In device memory, which this process reaches too. What pads its rows is NaN, and must stay so."""

    NAN = 0x7FFF

    def __init__(self, driver, rows, columns, leading, dtype, draw):
        self.rows, self.columns, self.leading, self.dtype = rows, columns, leading, dtype
        bits = [self.NAN] * (rows * leading)
        for row in range(rows):
            for column in range(columns):
                bits[row * leading + column] = draw()
        self.address = driver.allocate(2 * len(bits))
        ctypes.memmove(self.address, struct.pack(f"{len(bits)}H", *bits), 2 * len(bits))

    def read(self):
        count = self.rows * self.leading
        bits = struct.unpack(f"{count}H", ctypes.string_at(self.address, 2 * count))
        rows = [bits[row * self.leading : (row + 1) * self.leading] for row in range(self.rows)]
        assert all(word == self.NAN for row in rows for word in row[self.columns :]), "the padding was written"
        return [[from_bits(word, self.dtype) for word in row[: self.columns]] for row in rows]


class Gemm(unittest.TestCase):
    ALPHA = 0.5

    @classmethod
    def setUpClass(cls):
        cls.driver = gemm.Driver()
        cls.driver.start()
        cls.runtime = kjit.default_runtime()
        cls.arch = cls.runtime.device_arch(0, specific=True)

    def matrices(self, problem, config):
        pick = random.Random(problem.m * 7 + problem.n)
        dtype = config.dtype
        lda, ldb, ldc, ldr = problem.leading(config)

        def normal():
            return to_bits(pick.gauss(0, 1), dtype)

        a_shape = (problem.m, problem.k) if config.a_layout == gemm.ROW else (problem.k, problem.m)
        b_shape = (problem.k, problem.n) if config.b_layout == gemm.ROW else (problem.n, problem.k)
        return (
            Matrix(self.driver, *a_shape, lda, dtype, normal),
            Matrix(self.driver, *b_shape, ldb, dtype, normal),
            Matrix(self.driver, problem.m, problem.n, ldc, dtype, lambda: Matrix.NAN),
            Matrix(self.driver, 1, problem.n, ldc, dtype, normal),
            Matrix(self.driver, problem.m, problem.n, ldr, dtype, normal),
        )

    def expected(self, config, a, b, bias, residual):
        rows = a.read() if config.a_layout == gemm.ROW else list(zip(*a.read()))
        columns = b.read() if config.b_layout == gemm.COLUMN else list(zip(*b.read()))
        name, added, kept = gemm.EPILOGUES[config.epilogue], bias.read()[0], residual.read()
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                x = self.ALPHA * sum(map(float.__mul__, row, column))
                if name == "residual":
                    yield x + kept[i][j]
                else:
                    yield activation(x + (added[j] if name.startswith("bias") else 0), config.epilogue)

    def check(self, m, n, k, **fields):
        config = gemm.Config(**fields)
        problem = gemm.Problem(m, n, k, self.ALPHA)
        a, b, c, bias, residual = self.matrices(problem, config)
        kernel = gemm.Kernel(self.runtime, config, self.arch, self.driver)
        kernel.prepare(problem, *(each.address for each in (a, b, c, bias, residual)))()
        found = [x for row in c.read() for x in row]
        exact = list(self.expected(config, a, b, bias, residual))
        error = math.dist(found, exact) / math.hypot(*exact)
        self.assertLess(error, LIMIT[config.dtype])


WGMMA_CASES = {
    "k_major_operands": dict(m=70, n=72, k=100, BM=128, BN=128, b_layout=1),
    "m_and_n_major_operands": dict(m=70, n=69, k=37, BM=128, BN=64, a_layout=1, epilogue=4, dtype=FP16),
    "two_blocks_of_64_rows_a_consumer": dict(
        m=150, n=61, k=140, BM=256, BN=64, BK=128, stages=2, a_layout=1, epilogue=1
    ),
    "pingpong_over_many_tiles": dict(m=300, n=130, k=40, BM=64, BN=64, pingpong=1, stages=3, b_layout=1, epilogue=2),
    "sums_for_narrow_tiles": dict(m=20, n=45, k=130, BM=64, BN=32, consumers=1, b_layout=1, epilogue=3),
    "swap_for_few_rows": dict(
        m=5, n=141, k=200, BM=64, BN=8, BK=128, swap=1, consumers=1, stages=3, b_layout=1, epilogue=1
    ),
    "swap_with_an_n_major_operand": dict(m=17, n=70, k=70, BM=128, BN=16, swap=1, consumers=1, epilogue=4),
    "one_element": dict(m=1, n=1, k=1, BM=64, BN=64, consumers=1, b_layout=1),
}
MMA_CASES = {
    "row_row": dict(m=70, n=61, k=77),
    "row_column": dict(m=70, n=61, k=45, b_layout=1, BK=64, stages=3, epilogue=2),
    "column_row": dict(m=70, n=61, k=45, a_layout=1, epilogue=4, dtype=FP16),
    "column_column": dict(m=70, n=61, k=45, a_layout=1, b_layout=1, BK=64, stages=2, epilogue=1),
}


def add_tests(kind, cases, **common):
    for name, case in cases.items():
        fields = {**common, **case}
        setattr(Gemm, f"test_{kind}__{name}_is_right", lambda self, fields=fields: self.check(**fields))


if sys.argv[1:2] == ["mma"]:
    add_tests("mma", MMA_CASES, instruction=gemm.MMA, BM=64, BN=64, BK=32, stages=3, warps_m=2, warps_n=2)
else:
    add_tests("wgmma", WGMMA_CASES)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
