"""The GEMM through kjit.Family: what is chosen, from a tuned table or by the family's rules, is loaded and launched.

    family.py 2048 4096 4096 [--dtype bf16] [--epilogue bias_gelu]      on a GPU, with PyTorch; checks against float64

A linear layer: A is row-major, B column-major, and rows begin at multiples of 16 bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Optional

import kjit

FOLDER = Path(__file__).resolve().parent


def problem_of(m: int, n: int, k: int, dtype: str = "bf16", epilogue: str = "none") -> dict[str, Any]:
    return {"dtype": dtype, "a_layout": "row", "b_layout": "column", "epilogue": epilogue, "m": m, "n": n, "k": k}


def tensor_maps(config: Any, a: Any, b: Any, c: Any) -> list[Any]:
    """Maps of A (m x k), B^T (n x k) and C, as the kernel's producer reads them; bytes of zero where it does not."""
    none = bytes(128)
    if config.instruction == "mma":
        return [none, none, none]
    a_share, b_share = config.BM // config.cluster_n, config.BN // config.cluster_m
    if config.swap:
        a_share, b_share = config.BN // config.cluster_m, config.BM // config.cluster_n
    promotion = "256b" if a.stride(0) % 64 == 0 and b.stride(1) % 64 == 0 else "128b"
    through_sums = config.swap or config.split_k > 1 or config.BN % 64 != 0

    def make(matrix: Any, rows: int) -> Any:
        return kjit.TensorMap(matrix, box=(rows, 64), swizzle="128b", promotion=promotion)

    return [make(a, a_share), make(b.T, b_share), none if through_sums else make(c, 64)]


class Gemm:
    """C = act(A B + bias), by the config that the family chooses."""

    def __init__(self) -> None:
        self.family = kjit.Family(FOLDER / "gemm.yaml")

    def __call__(self, a: Any, b: Any, c: Any, bias: Any = None, residual: Any = None, epilogue: str = "none",
                 config: Optional[Any] = None) -> Any:  # fmt: skip
        (m, k), n = a.shape, b.shape[1]
        dtype = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}[str(a.dtype)]
        config = config or self.family.choose(problem_of(m, n, k, dtype, epilogue)).config
        kernel = self.family.get(config)
        leading = (a.stride(0), b.stride(1), c.stride(0), residual.stride(0) if residual is not None else c.stride(0))
        kernel.launch(None, *tensor_maps(config, a, b, c), a, b, c, bias, residual, m, n, k, *leading, 1.0)
        return config


def main() -> int:
    import torch

    import bench
    import gemm

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for size in "mnk":
        parser.add_argument(size, type=int)
    parser.add_argument("--dtype", choices=gemm.DTYPES, default="bf16")
    parser.add_argument("--epilogue", choices=gemm.EPILOGUES, default="none")
    options = parser.parse_args()
    number, epilogue = gemm.DTYPES[options.dtype], gemm.EPILOGUES.index(options.epilogue)
    inputs = bench.Inputs(options.m, options.n, options.k, number, gemm.ROW, gemm.COLUMN)
    inputs.c.fill_(float("nan"))
    config = Gemm()(inputs.a, inputs.b, inputs.c, inputs.bias, inputs.residual, options.epilogue)
    torch.cuda.synchronize()
    wrong = bench.error_of(inputs, epilogue, 1.0)
    right = wrong < bench.LIMIT[number]
    print(f"{config}: relative error {wrong:.1e}, {'right' if right else 'WRONG'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
