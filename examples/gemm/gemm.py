"""The GEMM of this folder from Python: its configs, the rules that they obey, the choice by shape, and the call.

    kernel = Kernel(runtime, Config(BM=128, BN=256), arch="sm_90a")
    call = kernel.prepare(Problem(m, n, k), a, b, c, bias, residual)   # device addresses
    call(stream)

Only public parts of kjit are used: compile_source() makes the cubin. Loading, tensor maps and launches are plain calls
of the CUDA driver.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from pathlib import Path
from typing import Any, Callable, Optional

FOLDER = Path(__file__).resolve().parent
SHARED_PER_BLOCK = 232448  # bytes, sm_90 after opting in; sm_80 has 166912
DTYPES = {"fp16": 5, "bf16": 15}
EPILOGUES = ("none", "bias", "bias_gelu", "bias_silu", "residual")
MMA, WGMMA = 0, 1
ROW, COLUMN = 0, 1


def divup(a: int, b: int) -> int:
    return -(-a // b)


@dataclasses.dataclass(frozen=True)
class Config:
    """The kernel's constants, one `#define KJIT_<field>` each."""

    instruction: int = WGMMA
    dtype: int = DTYPES["bf16"]
    a_layout: int = ROW
    b_layout: int = ROW
    epilogue: int = 0
    BM: int = 128
    BN: int = 256
    BK: int = 64
    stages: int = 4
    consumers: int = 2  # wgmma: warpgroups of 128 threads; mma: not used
    pingpong: int = 0
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    swap: int = 0
    group_m: int = 8
    store_buffers: int = 2
    blocks_per_sm: int = 1
    warps_m: int = 2  # mma: warps along M and N
    warps_n: int = 4

    def defines(self) -> dict[str, int]:
        return {f"KJIT_{field.name}": getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def through_sums(self) -> bool:
        return bool(self.swap) or self.split_k > 1 or self.BN % 64 != 0

    @property
    def cluster(self) -> int:
        return self.cluster_m * self.cluster_n * self.split_k

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1) if self.instruction == WGMMA else 32 * self.warps_m * self.warps_n

    @property
    def shared_bytes(self) -> int:
        ring = self.stages * (self.BM + self.BN) * self.BK * 2
        if self.instruction == MMA:
            return ring
        pieces = 0 if self.through_sums else self.consumers * self.store_buffers * 64 * 64 * 2
        return ring + pieces + 16 * self.stages + 1023

    def broken_rule(self) -> Optional[str]:
        """The first rule that the config breaks, as a sentence; None if it is legal."""
        for holds, sentence in self._rules():
            if not holds:
                return sentence
        return None

    def _rules(self) -> list[tuple[bool, str]]:
        shared = self.shared_bytes * self.blocks_per_sm + 1024 * (self.blocks_per_sm - 1)
        rules = [(shared <= SHARED_PER_BLOCK, f"{self.shared_bytes} bytes of shared memory: must fit an SM")]
        if self.instruction == MMA:
            return rules + [
                (self.BM % (16 * self.warps_m) == 0, "BM: a multiple of 16 for each warp along M"),
                (self.BN % (16 * self.warps_n) == 0, "BN: a multiple of 16 for each warp along N"),
            ]
        left_k_major, right_k_major = self.a_layout == ROW, self.b_layout == COLUMN
        if self.swap:
            left_k_major, right_k_major = right_k_major, left_k_major
        sum_rows, sum_columns = (self.BN, self.BM) if self.swap else (self.BM, self.BN)
        per_tile = 1 if self.pingpong else self.consumers
        rows = self.BM // per_tile
        sums = rows * self.BN // 128
        alone = self.blocks_per_sm == 1
        most = ({1: 208, 2: 192, 3: 128} if alone else {1: 64, 2: 0, 3: 0})[self.consumers]
        return rules + [
            (self.BM % (64 * per_tile) == 0, "BM: a multiple of 64 for each consumer of a tile"),
            (self.BN % 8 == 0 and self.BN <= 256, "BN: a multiple of 8 up to 256"),
            (right_k_major or self.BN % 64 == 0, "BN: a multiple of 64 where the right operand is not K-major"),
            (self.BK % 64 == 0, "BK: a multiple of 64"),
            (sums <= most, f"{sums} sums a thread: at most {most}"),
            (not self.pingpong or (self.consumers == 2 and not self.through_sums), "pingpong: 2 consumers, C by TMA"),
            (self.cluster <= 8, "cluster_m * cluster_n * split_k: at most 8"),
            (
                not self.through_sums
                or sum_rows * (sum_columns + 8) * 4 <= self.stages * (self.BM + self.BN) * self.BK * 2,
                "stages: the sums must fit the memory of the operands",
            ),
            ((self.BM if left_k_major else self.BK) % (8 * self.cluster_n) == 0, "cluster_n: shares of 8 rows"),
            ((self.BN if right_k_major else self.BK) % (8 * self.cluster_m) == 0, "cluster_m: shares of 8 rows"),
        ]

    def grid(self, m: int, n: int, sm_count: int) -> int:
        """Blocks: in x alone."""
        if self.instruction == MMA:
            return divup(m, self.BM) * divup(n, self.BN)
        if self.swap:
            m, n = n, m
        clusters = divup(m, self.BM * self.cluster_m) * divup(n, self.BN * self.cluster_n)
        if self.through_sums:
            return clusters * self.cluster
        # A larger cluster leaves some SMs of the card's groups of 16 or 18 without work.
        usable = sm_count * self.blocks_per_sm if self.cluster <= 2 else sm_count * self.blocks_per_sm // 8 * 8
        return min(clusters, usable // self.cluster) * self.cluster


@dataclasses.dataclass(frozen=True)
class Problem:
    """C (m x n) = act(alpha * A * B + bias). Leading dimensions of 0: the smallest that is a multiple of 8."""

    m: int
    n: int
    k: int
    alpha: float = 1.0
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    ldr: int = 0

    def leading(self, config: Config) -> tuple[int, int, int, int]:
        smallest = (
            self.k if config.a_layout == ROW else self.m,
            self.n if config.b_layout == ROW else self.k,
            self.n,
            self.n,
        )
        given = (self.lda, self.ldb, self.ldc, self.ldr)
        return tuple(wanted or divup(least, 8) * 8 for wanted, least in zip(given, smallest))


def _stages(config: Config, most: int) -> Config:
    """With as many stages as fit, up to `most`."""
    for stages in range(most, 2, -1):
        candidate = dataclasses.replace(config, stages=stages)
        if candidate.broken_rule() is None:
            return candidate
    return dataclasses.replace(config, stages=2)


def choose(problem: Problem, base: Config, sm_count: int = 132) -> Config:
    """A config for sm_90a: `base` has the types, layouts and the epilogue. README.md says where the rules come from."""
    m, n = problem.m, problem.n

    def config(**fields: int) -> Config:
        return dataclasses.replace(base, instruction=WGMMA, **fields)

    if m <= 64:
        # The weights are read once, at the speed of the memory: narrow tiles of C transposed.
        columns = divup(n, 64)
        shape = dict(swap=1, BN=divup(m, 8) * 8 if base.a_layout == ROW else 64, consumers=1, blocks_per_sm=2)
        if columns > 2 * sm_count:
            return _stages(config(BM=128, BK=64, **shape), 6)
        split = 2 if 2 * columns <= sm_count and problem.k >= 1024 else 1
        return _stages(config(BM=64, BK=128, split_k=split, **shape), 6)
    if m <= 128 and divup(n, 64) <= sm_count:
        split = 2 if 2 * divup(n, 64) <= sm_count and problem.k >= 1024 else 1
        return _stages(config(BM=128, BN=64, split_k=split), 8)
    return _choose_large(problem, config, sm_count)


def choose_mma(base: Config) -> Config:
    """A config for sm_80 and later."""
    return dataclasses.replace(
        base, instruction=MMA, BM=128, BN=128, BK=32, stages=4, warps_m=2, warps_n=4, blocks_per_sm=2, group_m=8
    )


def _choose_large(problem: Problem, config: Callable[..., Config], sm_count: int) -> Config:
    """The least time for all waves of tiles, each tile's by its area and a factor that was measured."""
    m, n = problem.m, problem.n
    aligned = all(leading % 64 == 0 for leading in problem.leading(config())[:2])
    best, best_cost = None, 0.0
    for bm, bn, factor, fields in (
        (128, 128, 1.0 if aligned else 1.2, dict(pingpong=1)),
        (128, 192, 0.985 if aligned else 1.05, dict(pingpong=1)),
        (128, 256, 1.02, dict()),
        (64, 128, 1.25, dict(consumers=1)),
    ):
        tiles = divup(m, bm) * divup(n, bn)
        if tiles <= sm_count and fields.get("pingpong"):
            fields, factor = dict(), factor + 0.08  # one tile a block: its consumers share it
        if tiles <= sm_count and bn == 256:
            factor = 0.98
        cost = divup(tiles, sm_count) * bm * bn * factor
        if best is None or cost < best_cost:
            cluster = 2 if m > bm and (tiles > sm_count or bm == 64 and not aligned) else 1
            best, best_cost = config(BM=bm, BN=bn, cluster_m=cluster, group_m=4, **fields), cost
    return _stages(best, 8)


class DriverError(Exception):
    pass


class _LaunchAttribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint32),
    ]


class Driver:
    """libcuda, opened where kjit finds it, too."""

    CLUSTER_DIMENSION = 4
    MAX_DYNAMIC_SHARED = 8

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(os.environ.get("KJIT_LIBCUDA") or "libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.lib, name)(*arguments)
        if result != 0:
            raise DriverError(f"{name}: error {result}")

    def start(self) -> None:
        """A context for this thread, unless some framework made one."""
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        if not context:
            device = ctypes.c_int()
            self.call("cuDeviceGet", ctypes.byref(device), 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def tensor_map(self, dtype: int, address: int, inner: int, outer: int, stride: int, rows: int) -> Any:
        """A matrix of 16-bit elements, boxes of 64 x `rows`, 128-byte swizzle. stride: elements."""
        storage = (ctypes.c_uint64 * 24)()
        aligned = (ctypes.addressof(storage) + 63) & ~63
        self.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(aligned),
            {5: 6, 15: 9}[dtype],  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16, _BFLOAT16
            2,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 2)(inner, outer),
            (ctypes.c_uint64 * 1)(stride * 2),
            (ctypes.c_uint32 * 2)(64, rows),
            (ctypes.c_uint32 * 2)(1, 1),
            0,
            3,  # 128-byte swizzle
            3 if stride % 64 == 0 else 2,  # 256 bytes at a time into L2; 128 where rows begin within a line
            0,
        )
        return (ctypes.c_uint64 * 16).from_buffer_copy(ctypes.string_at(aligned, 128))


class Kernel:
    """A config, compiled and loaded."""

    def __init__(self, runtime: Any, config: Config, arch: str, driver: Optional[Driver] = None) -> None:
        rule = config.broken_rule()
        if rule:
            raise ValueError(rule)
        self.config = config
        self.artifact = runtime.compile_source(
            (FOLDER / "gemm.cu").read_text(),
            "gemm",
            arch,
            name="gemm.cu",
            defines=config.defines(),
            include_dirs=[str(FOLDER)],
        )
        if driver is not None:
            self.load(driver)

    def load(self, driver: Driver) -> None:
        """Into the driver, for the current context's device."""
        self.driver = driver
        self._library, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        kernel, device = ctypes.c_void_p(), ctypes.c_int()
        driver.call(
            "cuLibraryLoadData", ctypes.byref(self._library), self.artifact.cubin, None, None, 0, None, None, 0
        )
        driver.call("cuLibraryGetKernel", ctypes.byref(kernel), self._library, b"gemm")
        driver.call("cuCtxGetDevice", ctypes.byref(device))
        driver.call(
            "cuKernelSetAttribute", Driver.MAX_DYNAMIC_SHARED, self.config.shared_bytes, kernel, device
        )
        driver.call("cuKernelGetFunction", ctypes.byref(self._function), kernel)
        count = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(count), 16, device)
        self.sm_count = count.value

    def prepare(
        self, problem: Problem, a: int, b: int, c: int, bias: int = 0, residual: int = 0
    ) -> Callable[[int], None]:
        """A call that can be made many times. a, b, c, bias, residual: device addresses."""
        config = self.config
        lda, ldb, ldc, ldr = problem.leading(config)
        m, n, k = problem.m, problem.n, problem.k
        maps = [(ctypes.c_uint64 * 16)() for _ in "abc"]
        if config.instruction == WGMMA:
            make = self.driver.tensor_map
            a_share, b_share = (config.BM, config.cluster_n), (config.BN, config.cluster_m)
            if config.swap:
                a_share, b_share = b_share, a_share
            if config.a_layout == ROW:
                maps[0] = make(config.dtype, a, k, m, lda, a_share[0] // a_share[1])
            else:
                maps[0] = make(config.dtype, a, m, k, lda, config.BK // a_share[1])
            if config.b_layout == COLUMN:
                maps[1] = make(config.dtype, b, k, n, ldb, b_share[0] // b_share[1])
            else:
                maps[1] = make(config.dtype, b, n, k, ldb, config.BK // b_share[1])
            if not config.through_sums:
                maps[2] = make(config.dtype, c, n, m, ldc, 64)
        launch = _LaunchConfig(
            grid=(config.grid(m, n, self.sm_count), 1, 1),
            block=(config.threads, 1, 1),
            shared_bytes=config.shared_bytes,
        )
        cluster = _LaunchAttribute(id=Driver.CLUSTER_DIMENSION)
        cluster.value[:3] = (config.cluster, 1, 1)
        if config.instruction == WGMMA and config.cluster > 1:
            launch.attributes, launch.attribute_count = ctypes.pointer(cluster), 1
        values = [
            *maps,
            *(ctypes.c_uint64(address) for address in (a, b, c, bias, residual)),
            *(ctypes.c_int32(number) for number in (m, n, k, lda, ldb, ldc, ldr)),
            ctypes.c_float(problem.alpha),
        ]
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        keep = (values, cluster)  # as long as the call

        def call(stream: int = 0, _keep: Any = keep) -> None:
            launch.stream = stream
            self.driver.call("cuLaunchKernelEx", ctypes.byref(launch), self._function, arguments, None)

        return call
