"""Kernels of Python packages, as JSON on standard output; run by the Python that has the packages.

usage: python package_cases.py > CASES.json      (pip install -r requirements.txt)

CuPy: the sources of its RawKernels and RawModules, with their options and name expressions. Warp: the CUDA that it
generates for its own examples. CUTLASS: CuTe and CUTLASS templates of the headers in the package. A package that is not
there, or a module that does not import, is named on standard error.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
import warnings
from pathlib import Path
from typing import Any, Iterator

Case = dict[str, Any]
_NAME = re.compile(r'extern\s+"C"\s*(?:\{\s*)?__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)')


def _say(text: str) -> None:
    print(f"package_cases.py: {text}", file=sys.stderr)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever an example may need and not find
        _say(f"{name} left out: {error!r:.120}")
        return None


def _below(name: str) -> Iterator[str]:
    package = _import(name)
    for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
        yield f"{name}.{module.name}"


# CuPy.

_CUPY = ("cupyx.signal._radartools._radartools", "cupyx.scipy.signal._upfirdn", "cupyx.scipy.signal._peak_finding",
         "cupyx.scipy.signal._max_len_seq", "cupyx.scipy.signal._spectral_impl", "cupyx.scipy.signal._splines",
         "cupyx.scipy.signal._iir_utils", "cupyx.scipy.signal._waveforms", "cupyx.scipy.interpolate._interpnd",
         "cupyx.scipy.interpolate._bspline", "cupyx.scipy.interpolate._bspline2",
         "cupyx.scipy.interpolate._ndbspline", "cupyx.scipy.interpolate._interpolate",
         "cupyx.scipy.spatial._kdtree_utils", "cupyx.scipy.spatial.delaunay_2d._kernels")
# More names take minutes and show nothing more.
_CUPY_NAMES_MAX = 8


def _cupy_dirs(cupy: Any) -> list[str]:
    root = Path(cupy.__file__).parent / "_core/include"
    return [str(root / f"cupy/_cccl/{part}") for part in ("libcudacxx", "thrust", "cub")] + [str(root)]


def cupy_cases() -> Iterator[Case]:
    cupy = _import("cupy")
    seen = set()
    for module in filter(None, map(_import, _CUPY if cupy else ())):
        for name, value in sorted(vars(module).items()):
            if not isinstance(value, (cupy.RawModule, cupy.RawKernel)) or not value.code or value.code in seen:
                continue
            seen.add(value.code)
            whole = isinstance(value, cupy.RawModule)
            names = list((value.name_expressions if whole else [value.name]) or _NAME.findall(value.code)[:1])
            options = [option.replace("-std=", "--std=") for option in value.options]
            yield {"name": f"cupy/{module.__name__.split('.')[-1].strip('_')}/{name.strip('_').lower()}",
                   "text": value.code, "names": names[:_CUPY_NAMES_MAX], "dirs": _cupy_dirs(cupy),
                   "options": options}


# Warp.

# The examples' other folders run something when they are imported.
_WARP = ("warp.examples.core", "warp.examples.tile", "warp.examples.optim", "warp.examples.fem")
# What Warp passes for a release build, but for its automatic precompiled headers.
_WARP_OPTIONS = ["--std=c++17", "--device-as-default-execution-space", "--fmad=true", "--extra-device-vectorization",
                 "--restrict", "--diag-suppress=177,550"]
_WARP_DEFINES = {"NDEBUG": "1", "WP_ENABLE_MATHDX": "0"}


def _warp_text(warp: Any, module: Any) -> str:
    context = importlib.import_module("warp._src.context")
    options = module.resolve_options(warp.config) | {"output_arch": 90, "block_dim": 256}
    text: str = context.ModuleBuilder(module, options, target="cuda").codegen("cuda")
    return text


def warp_cases() -> Iterator[Case]:
    warp = _import("warp")
    if not warp:
        return
    warp.config.quiet = True
    native = str(Path(warp.__file__).parent / "native")
    for name in [each for folder in _WARP for each in _below(folder)]:
        example = _import(name)
        values = vars(example).values() if example else []
        mine = [value for value in values if isinstance(value, warp.Kernel) and value.module.name == name]
        try:
            text = _warp_text(warp, mine[0].module) if mine else ""
        except Exception as error:  # kernels over libmathdx need a GPU to be generated
            _say(f"{name} left out: {error!r:.120}")
            continue
        entries = _NAME.findall(text)
        if entries:
            yield {"name": f"warp/{name.split('.')[-1].removeprefix('example_')}", "text": text, "entry": entries[0],
                   "dirs": [native], "options": _WARP_OPTIONS, "defines": _WARP_DEFINES}


# CUTLASS. The texts are ours and instantiate its templates. The seed is there because NVRTC names what is internal to a
# module without extern "C" functions by the process's number otherwise, and no two compiles are equal.

_CUTE_GEMM = """#include <cute/tensor.hpp>
using namespace cute;
template <int M, int N, int K> __global__ void gemm(const half_t *a, const half_t *b, float *c) {
  auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2>>{});
  auto mA = make_tensor(make_gmem_ptr(a), make_shape(Int<M>{}, Int<K>{}), LayoutRight{});
  auto mB = make_tensor(make_gmem_ptr(b), make_shape(Int<N>{}, Int<K>{}), LayoutRight{});
  auto mC = make_tensor(make_gmem_ptr(c), make_shape(Int<M>{}, Int<N>{}), LayoutRight{});
  auto thread = mma.get_slice(threadIdx.x);
  auto tA = thread.partition_A(mA);
  auto tB = thread.partition_B(mB);
  auto tC = thread.partition_C(mC);
  auto rA = make_fragment_like(tA);
  auto rB = make_fragment_like(tB);
  auto rC = make_fragment_like(tC);
  clear(rC);
  copy(tA, rA);
  copy(tB, rB);
  gemm(mma, rA, rB, rC);
  copy(rC, tC);
}
"""
_CUTE_COPY = """#include <cute/tensor.hpp>
using namespace cute;
extern "C" __global__ void k(float *to, const float *from) {
  auto layout = make_layout(make_shape(Int<32>{}, Int<8>{}));
  auto out = make_tensor(make_gmem_ptr(to), layout);
  auto in = make_tensor(make_gmem_ptr(from), layout);
  auto threads = make_layout(Int<32>{});
  copy(local_partition(in, threads, threadIdx.x), local_partition(out, threads, threadIdx.x));
}
"""
_CUTE_SWIZZLE = """#include <cute/tensor.hpp>
using namespace cute;
extern "C" __global__ void k(half_t *data) {
  __shared__ half_t storage[64 * 64];
  auto layout = composition(Swizzle<3, 3, 3>{}, make_layout(make_shape(Int<64>{}, Int<64>{}), LayoutRight{}));
  auto tile = make_tensor(make_smem_ptr(storage), layout);
  tile(threadIdx.x, 3) = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile(3, threadIdx.x);
}
"""
_CUTLASS_ARRAY = """#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>
extern "C" __global__ void k(cutlass::Array<cutlass::half_t, 8> *to, const cutlass::Array<float, 8> *from) {
  to[threadIdx.x] = cutlass::NumericArrayConverter<cutlass::half_t, float, 8>()(from[threadIdx.x]);
}
"""
_CUTLASS_EPILOGUE = """#include <cutlass/epilogue/thread/linear_combination_relu.h>
using Op = cutlass::epilogue::thread::LinearCombinationRelu<cutlass::half_t, 8, float, float>;
extern "C" __global__ void k(Op::Params params, Op::FragmentOutput *d, const Op::FragmentAccumulator *acc) {
  d[threadIdx.x] = Op(params)(acc[threadIdx.x], d[threadIdx.x]);
}
"""
_CUTLASS_MMA = """#include <cutlass/gemm/warp/default_mma_tensor_op.h>
#include <cutlass/layout/tensor_op_multiplicand_sm75.h>
using A = cutlass::layout::RowMajorTensorOpMultiplicandCrosswise<16, 32>;
using B = cutlass::layout::ColumnMajorTensorOpMultiplicandCrosswise<16, 32>;
using Mma = cutlass::gemm::warp::DefaultMmaTensorOp<cutlass::gemm::GemmShape<32, 32, 32>,
    cutlass::gemm::GemmShape<16, 8, 16>, cutlass::half_t, A, cutlass::half_t, B, float,
    cutlass::layout::RowMajor>::Type;
extern "C" __global__ void k(const Mma::FragmentA *a, const Mma::FragmentB *b, Mma::FragmentC *c) {
  Mma mma;
  Mma::FragmentC sum = c[threadIdx.x];
  mma(sum, a[threadIdx.x], b[threadIdx.x], sum);
  c[threadIdx.x] = sum;
}
"""
_CUTLASS = {
    "cute_copy": (_CUTE_COPY, ["k"]),
    "cute_gemm": (_CUTE_GEMM, ["gemm<32, 32, 16>"]),
    "cute_swizzle": (_CUTE_SWIZZLE, ["k"]),
    "array": (_CUTLASS_ARRAY, ["k"]),
    "epilogue": (_CUTLASS_EPILOGUE, ["k"]),
    "mma_tensor_op": (_CUTLASS_MMA, ["k"]),
}


def cutlass_cases() -> Iterator[Case]:
    library = _import("cutlass_library")
    include = Path(library.__file__).parent / "source/include" if library else Path("/nonexistent")
    if not include.is_dir():
        _say("CUTLASS left out: its package has no source/include")
        return
    for name, (text, names) in _CUTLASS.items():
        yield {"name": f"cutlass/{name}", "text": text, "names": names, "dirs": [str(include)],
               "options": ["-default-device", "--frandom-seed=1"]}


def main() -> None:
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr  # Warp greets on standard output
    json.dump([*cutlass_cases(), *cupy_cases(), *warp_cases()], out, indent=1)


if __name__ == "__main__":
    main()
