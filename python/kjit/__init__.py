"""kjit: CUDA kernels compiled at run time for exactly the configuration that was asked for: attention, and your own.

    out = kjit.attention(q, k, v)                                  # PyTorch, CuPy, JAX; on the current stream
    out = kjit.forward(kjit.FlashForwardKernelConfig.parse("(BF16, 128, 128, 64, 4): async+…"), q, k, v)
    kjit.warm("prebuilt", arch="sm_90")                            # fills the cache; no GPU needed
    kjit.Module(source)["scale"][grid, block](x, n)                # a kernel of your own
    kjit.Family("gemm.yaml").get("BM=128,BN=64").launch(None, a, b, c, m, n, k)

The library does the work; this package calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional, Union

from ._cache import Difference, Why
from ._library import version as __version__
from ._request import Part
from .artifact import Artifact, KernelInfo
from .attention import attention, forward, forward_timed, plan
from .bundle import Bundle, BundleWriter, bundle_keygen
from .enabling import disable, enable, enabled_counts
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
from .family import Family, FamilyConfig, FamilyKernel
from .flash_attn import (
    flash_attn_combine,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
    get_scheduler_metadata,
)
from .flash_config import (
    FIELDS,
    DType,
    FlashForwardKernelConfig,
    config_set,
    get_autotuning_kernel_configs,
    get_kernel_configs,
    get_kernel_progression_configs,
)
from .flex import flex_attention
from .installed import install_as_flash_attn
from .kernel import Kernel
from .module import Global, Module
from .program import Program, SealedKernel
from .raw import RawKernel, RawModule
from .runtime import Config, Key, Path, Runtime, default_runtime, known_cards
from .sealed import Sealer
from .tensor_map import TensorMap
from .tuning import Choice, Tuned, tune_attention
from .variant import Variant, explain


def compile(config: Config, arch: Optional[str] = None, *, no_compile: bool = False) -> Artifact:
    """Runtime.compile() of the default runtime: a config's kernel with its registers, spills and log. No GPU needed."""
    return default_runtime().compile(config, arch, no_compile=no_compile)


def compile_attention(
    dtype: Union[DType, int, str],
    head_dim: int,
    arch: Optional[str] = None,
    *,
    causal: bool = False,
    **sizes: int,
) -> Artifact:
    """Runtime.compile_attention() of the default runtime: the kernel that attention() uses for a problem."""
    return default_runtime().compile_attention(dtype, head_dim, arch, causal=causal, **sizes)


def compile_source(
    text: Optional[str],
    entry: Optional[str],
    arch: Optional[str] = None,
    *,
    name: str = "source.cu",
    defines: Optional[Mapping[str, object]] = None,
    headers: Optional[Mapping[str, str]] = None,
    include_dirs: Iterable[Path] = (),
    options: Iterable[str] = (),
    names: Iterable[str] = (),
    parts: Iterable[Part] = (),
    no_compile: bool = False,
    strict_sources: bool = False,
    keep_unused: bool = False,
    timeout_ms: int = 0,
) -> Artifact:
    """Runtime.compile_source() of the default runtime: a kernel of your own. No GPU needed."""
    return default_runtime().compile_source(
        text,
        entry,
        arch,
        name=name,
        defines=defines,
        headers=headers,
        include_dirs=include_dirs,
        options=options,
        names=names,
        parts=parts,
        no_compile=no_compile,
        strict_sources=strict_sources,
        keep_unused=keep_unused,
        timeout_ms=timeout_ms,
    )


def warm(
    configs: Union[str, Config, Iterable[Config]] = "prebuilt",
    arch: Union[None, str, Iterable[str]] = None,
    *,
    jobs: Optional[int] = None,
    progress: Optional[Callable[[int, int], None]] = None,
) -> dict[str, Any]:
    """Runtime.warm() of the default runtime: fill the cache."""
    return default_runtime().warm(configs, arch, jobs=jobs, progress=progress)


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
    "Artifact",
    "Bundle",
    "BundleWriter",
    "Choice",
    "CompileError",
    "DType",
    "DeadlinePassed",
    "Difference",
    "DriverError",
    "Error",
    "FIELDS",
    "Family",
    "FamilyConfig",
    "FamilyKernel",
    "FlashForwardKernelConfig",
    "Global",
    "InvalidArgument",
    "InvalidConfig",
    "Kernel",
    "KernelInfo",
    "Key",
    "Module",
    "NoDriver",
    "NoMemory",
    "NoNvrtc",
    "NotFound",
    "ParseError",
    "Part",
    "Program",
    "RawKernel",
    "RawModule",
    "Runtime",
    "SealedKernel",
    "Sealer",
    "TensorMap",
    "Tuned",
    "Unsupported",
    "Variant",
    "Why",
    "__version__",
    "attention",
    "bundle_keygen",
    "cache_stats",
    "compile",
    "compile_attention",
    "compile_source",
    "config_set",
    "default_runtime",
    "disable",
    "doctor",
    "enable",
    "enabled_counts",
    "explain",
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "flex_attention",
    "forward",
    "forward_timed",
    "get_autotuning_kernel_configs",
    "get_kernel_configs",
    "get_kernel_progression_configs",
    "get_scheduler_metadata",
    "install_as_flash_attn",
    "known_cards",
    "plan",
    "stats",
    "tune_attention",
    "warm",
]
