"""kjit: CUDA attention kernels compiled at run time for exactly the configuration that was asked for.

    out = kjit.attention(q, k, v)                                  # PyTorch, CuPy, JAX; on the current stream
    out = kjit.forward(kjit.FlashForwardKernelConfig.parse("(BF16, 128, 128, 64, 4): async+…"), q, k, v)
    kjit.warm("prebuilt", arch="sm_90")                            # fills the cache; no GPU needed

The library does the work; this package calls it.
"""

from __future__ import annotations

from typing import Any

from ._library import version as __version__
from .artifact import Artifact
from .attention import attention, forward, forward_timed, plan
from .errors import (
    CompileError,
    DeadlinePassed,
    DriverError,
    Error,
    InvalidArgument,
    InvalidConfig,
    NoDriver,
    NoMemory,
    NoNvrtc,
    NotFound,
    ParseError,
    Unsupported,
)
from .flash_attn import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from .flash_config import (
    FIELDS,
    DType,
    FlashForwardKernelConfig,
    config_set,
    get_autotuning_kernel_configs,
    get_kernel_configs,
    get_kernel_progression_configs,
)
from .runtime import Runtime, default_runtime


def compile(*arguments: Any, **options: Any) -> Artifact:
    """Runtime.compile() of the default runtime: a config's kernel with its registers, spills and log. No GPU needed."""
    return default_runtime().compile(*arguments, **options)


def compile_attention(*arguments: Any, **options: Any) -> Artifact:
    """Runtime.compile_attention() of the default runtime: the kernel that attention() uses for a problem."""
    return default_runtime().compile_attention(*arguments, **options)


def compile_source(*arguments: Any, **options: Any) -> Artifact:
    """Runtime.compile_source() of the default runtime: a kernel of your own."""
    return default_runtime().compile_source(*arguments, **options)


def warm(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Runtime.warm() of the default runtime: fill the cache."""
    return default_runtime().warm(*arguments, **options)


def stats() -> dict[str, int]:
    """This process's counters."""
    return default_runtime().stats()


def cache_stats() -> dict[str, int]:
    """The cache folder's counters, over all processes."""
    return default_runtime().cache_stats()


def doctor() -> dict[str, Any]:
    """What this machine has; `python -m kjit doctor` prints it."""
    return default_runtime().doctor()


__all__ = [
    "FIELDS",
    "Artifact",
    "CompileError",
    "DType",
    "DeadlinePassed",
    "DriverError",
    "Error",
    "FlashForwardKernelConfig",
    "InvalidArgument",
    "InvalidConfig",
    "NoDriver",
    "NoMemory",
    "NoNvrtc",
    "NotFound",
    "ParseError",
    "Runtime",
    "Unsupported",
    "__version__",
    "attention",
    "cache_stats",
    "compile",
    "compile_attention",
    "compile_source",
    "config_set",
    "default_runtime",
    "doctor",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "forward",
    "forward_timed",
    "get_autotuning_kernel_configs",
    "get_kernel_configs",
    "get_kernel_progression_configs",
    "plan",
    "stats",
    "warm",
]
