"""The peers: NAME(inputs) gives a function without arguments whose result is (batch, seq, heads, head_dim).

A peer imports what it needs when it is made, so that the list of them needs none of it. A module with several builds
of its kernels gives a peer of each, which find() finds on the machine.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from attention_inputs import Inputs
    from gpu_clock import Run

    Maker = Callable[[Inputs], Run]


def _kjit(inputs: Inputs) -> Run:
    import kjit

    out, causal = inputs.empty_out(), inputs.problem.causal
    return lambda: kjit.attention(inputs.q, inputs.k, inputs.v, causal=causal, out=out)


def _is_grouped(inputs: Inputs) -> bool:
    return inputs.problem.heads_q != inputs.problem.heads_kv


def sdpa(backend: str) -> Maker:
    """One of PyTorch's own, by its name in SDPBackend."""

    def make(inputs: Inputs) -> Run:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        chosen = SDPBackend.__members__[backend]
        problem = inputs.problem
        if problem.causal and problem.seq_q != problem.seq_kv:
            raise NotImplementedError("its causal mask is aligned top left")
        options = {"is_causal": problem.causal, **({"enable_gqa": True} if _is_grouped(inputs) else {})}

        def run() -> Any:
            with sdpa_kernel(chosen):
                return scaled_dot_product_attention(*inputs.bhsd, **options).transpose(1, 2)

        return run

    return make


_flex_compiled: Any = None


def _flex(inputs: Inputs) -> Run:
    """FlexAttention through torch.compile: one compilation for each problem."""
    global _flex_compiled
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.config.recompile_limit = 1000
    _flex_compiled = _flex_compiled or torch.compile(flex_attention, dynamic=False)
    problem, mask = inputs.problem, None
    if problem.causal:
        offset = problem.seq_kv - problem.seq_q
        lengths = (problem.seq_q, problem.seq_kv)
        mask = create_block_mask(lambda b, h, i, j: j <= i + offset, None, None, *lengths, device="cuda")
    options = {"block_mask": mask, "enable_gqa": _is_grouped(inputs)}
    return lambda: _flex_compiled(*inputs.bhsd, **options).transpose(1, 2)


def _flash_attn(module: str, **build: str) -> Maker:
    def make(inputs: Inputs) -> Run:
        function = importlib.import_module(module).flash_attn_func
        options = {"causal": inputs.problem.causal, **build}
        return lambda: _first(function(inputs.q, inputs.k, inputs.v, **options))

    return make


def _builds(name: str, module: str) -> dict[str, Maker]:
    """NAME, or where the module's impls() names several builds: NAME the first, "NAME BUILD" each other."""
    try:
        builds = list(importlib.import_module(module).impls())
    except Exception:  # there are none to choose from; why it cannot be imported is said where the peer is made
        builds = []
    makers = {name if index == 0 else f"{name} {build}": build for index, build in enumerate(builds)}
    return {each: _flash_attn(module, impl=build) for each, build in makers.items()} or {name: PEERS[name]}


def _flashinfer(inputs: Inputs) -> Run:
    import torch

    prefill = importlib.import_module("flashinfer.prefill")
    problem, workspace = inputs.problem, torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
    counts = torch.arange(problem.batch + 1, dtype=torch.int32, device="cuda")
    sizes = (problem.heads_q, problem.heads_kv, problem.head_dim, problem.head_dim_v)
    types = {"q_data_type": inputs.dtype, "kv_data_type": inputs.dtype}
    wrapper.plan(counts * problem.seq_q, counts * problem.seq_kv, *sizes, causal=problem.causal, **types)
    q, k, v = (tensor.flatten(0, 1) for tensor in (inputs.q, inputs.k, inputs.v))
    shape = inputs.empty_out().shape
    return lambda: wrapper.run(q, k, v).view(shape)


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


FLASH_ATTN_MODULES = {"FA3": "flash_attn_interface", "FA4": "flash_attn.cute"}

PEERS: dict[str, Maker] = {
    "kjit": _kjit,
    "FA2": sdpa("FLASH_ATTENTION"),
    "cuDNN": sdpa("CUDNN_ATTENTION"),
    "efficient": sdpa("EFFICIENT_ATTENTION"),
    "Flex": _flex,
    **{name: _flash_attn(module) for name, module in FLASH_ATTN_MODULES.items()},
    "FlashInfer": _flashinfer,
}


def find(names: Iterable[str]) -> dict[str, Maker]:
    """The peers of these names, with every build that this machine has of them."""
    found: dict[str, Maker] = {}
    for name in names:
        module = FLASH_ATTN_MODULES.get(name)
        found.update(_builds(name, module) if module else {name: PEERS[name]})
    return found


def prepare(inputs: Inputs, peers: Mapping[str, Maker]) -> tuple[dict[str, Run], dict[str, str]]:
    """The peers that compute these inputs rightly, each run twice, and why the others do not."""
    import torch

    runs, reasons = {}, {}
    for name, make in peers.items():
        try:
            run = make(inputs)
            error = inputs.error(run())
            if not inputs.is_right(error):
                reasons[name] = f"WRONG: error {error:.3g}, allowed {inputs.allowed:.3g}"
                continue
            run()
            runs[name] = run
        except torch.OutOfMemoryError:
            reasons[name] = "out of memory"
            torch.cuda.empty_cache()
        except Exception as error:  # whatever a peer raises is why it is not in the table
            first = str(error).strip().splitlines()[:1]
            reasons[name] = f"{type(error).__name__}: {first[0][:120] if first else ''}"
    torch.cuda.synchronize()
    return runs, reasons
