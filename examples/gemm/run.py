"""Runs one product from Python and checks it against float64.

    run.py 2048 4096 4096 [--dtype bf16] [--a row] [--b column] [--epilogue bias_gelu] [--config "BM=128,stages=6"]

PyTorch holds the arrays; any other holder of device memory would do, as the kernel takes addresses.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

import torch

import bench
import gemm


def read_config(text: str, base: gemm.Config) -> gemm.Config:
    """Fields as name=value, over `base`."""
    pairs = (item.split("=") for item in text.split(",") if item)
    return dataclasses.replace(base, **{name.strip(): int(value) for name, value in pairs})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for size in "mnk":
        parser.add_argument(size, type=int)
    parser.add_argument("--dtype", choices=gemm.DTYPES, default="bf16")
    parser.add_argument("--a", choices=("row", "column"), default="row")
    parser.add_argument("--b", choices=("row", "column"), default="column")
    parser.add_argument("--epilogue", choices=gemm.EPILOGUES, default="none")
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--config", help="fields as name=value; by default choose() decides")
    options = parser.parse_args()

    setting = bench.Bench()
    layouts = {"row": gemm.ROW, "column": gemm.COLUMN}
    base = gemm.Config(
        dtype=gemm.DTYPES[options.dtype],
        a_layout=layouts[options.a],
        b_layout=layouts[options.b],
        epilogue=gemm.EPILOGUES.index(options.epilogue),
    )
    problem = gemm.Problem(options.m, options.n, options.k, options.alpha)
    sm_count = torch.cuda.get_device_properties(0).multi_processor_count
    if options.config is not None:
        config = read_config(options.config, base)
    elif setting.arch == "sm_90a":
        config = gemm.choose(problem, base, sm_count)
    else:
        config = gemm.choose_mma(base)
    setting.build([config])
    if config not in setting.kernels:
        return 1
    right = bench.check_one(setting, config, options.m, options.n, options.k, options.alpha)
    print(f"{bench.describe(config)}: {'right' if right else 'WRONG'}, {setting.kernels[config].artifact.origin}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
