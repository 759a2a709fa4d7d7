"""Kernels over the toolkit's own headers: nothing has to be fetched for them.

The texts are ours, the code that they instantiate is NVIDIA's: the headers of CUDA and of CCCL as they lie in the
toolkit. SMALL names those that every test run compares.
"""

from __future__ import annotations

from typing import Any

_CUB_BLOCK = """#include <cub/block/block_{header}.cuh>
extern "C" __global__ void k(int *data) {{
  using Block = cub::{type};
  __shared__ typename Block::TempStorage storage;
  int items[4];
  for (int i = 0; i < 4; i++) items[i] = data[threadIdx.x * 4 + i];
  {call}
  for (int i = 0; i < 4; i++) data[threadIdx.x * 4 + i] = items[i];
}}
"""


def _cub(header: str, type_: str, call: str) -> str:
    return _CUB_BLOCK.format(header=header, type=type_, call=call)


def _over(headers: str, parameters: str, body: str, before: str = "") -> str:
    lines = "".join(f"#include <{name}>\n" for name in headers.split())
    return f'{lines}{before}extern "C" __global__ void k({parameters}) {{\n  {body}\n}}\n'


_TEXTS: dict[str, str] = {
    "fp16": _over("cuda_fp16.h", "__half2 *p, int n",
                  "if (threadIdx.x < n) p[threadIdx.x] = __hfma2(p[0], p[1], p[2]);"),
    "bf16": _over("cuda_bf16.h", "__nv_bfloat162 *p", "p[threadIdx.x] = __hadd2(p[threadIdx.x], p[0]);"),
    "fp8": _over("cuda_fp8.h", "__nv_fp8_e4m3 *p, const float *x",
                 "p[threadIdx.x] = __nv_fp8_e4m3(x[threadIdx.x]);"),
    "fp6": _over("cuda_fp6.h", "__nv_fp6_e3m2 *p, const float *x", "p[threadIdx.x] = __nv_fp6_e3m2(x[threadIdx.x]);"),
    "fp4": _over("cuda_fp4.h", "__nv_fp4_e2m1 *p, const float *x", "p[threadIdx.x] = __nv_fp4_e2m1(x[threadIdx.x]);"),
    "complex": _over("cuComplex.h", "cuFloatComplex *p", "p[threadIdx.x] = cuCmulf(p[threadIdx.x], p[0]);"),
    "math_constants": _over("math_constants.h", "double *p", "p[threadIdx.x] = CUDART_PI * p[0];"),
    "vector_types": _over("vector_types.h vector_functions.h", "float4 *p",
                          "p[threadIdx.x] = make_float4(1, 2, 3, p[0].w);"),
    "curand_philox": _over("curand_kernel.h", "float4 *p, unsigned long long seed",
                           "curandStatePhilox4_32_10_t state;\n  curand_init(seed, threadIdx.x, 0, &state);\n"
                           "  p[threadIdx.x] = curand_uniform4(&state);"),
    "curand_xorwow": _over("curand_kernel.h", "curandState *s, float *p",
                           "curandState state = s[threadIdx.x];\n  p[threadIdx.x] = curand_normal(&state);"),
    "mma": _over("mma.h", "const half *a, const half *b, float *c",
                 "using namespace nvcuda;\n  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;\n"
                 "  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;\n"
                 "  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;\n  wmma::fill_fragment(fc, 0.0f);\n"
                 "  wmma::load_matrix_sync(fa, a, 16);\n  wmma::load_matrix_sync(fb, b, 16);\n"
                 "  wmma::mma_sync(fc, fa, fb, fc);\n  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);"),
    "pipeline_primitives": _over("cuda_pipeline_primitives.h", "float4 *p",
                                 "__shared__ float4 s[32];\n"
                                 "  __pipeline_memcpy_async(&s[threadIdx.x], &p[threadIdx.x], 16);\n"
                                 "  __pipeline_commit();\n  __pipeline_wait_prior(0);\n  p[threadIdx.x] = s[31];"),
    "cooperative_groups": _over("cooperative_groups.h", "int *p",
                                "auto tile = cooperative_groups::tiled_partition<16>("
                                "cooperative_groups::this_thread_block());\n"
                                "  p[threadIdx.x] = tile.shfl_down(p[0], 1);"),
    "cooperative_groups_reduce": _over("cooperative_groups.h cooperative_groups/reduce.h", "int *p",
                                       "namespace cg = cooperative_groups;\n"
                                       "  auto tile = cg::tiled_partition<32>(cg::this_thread_block());\n"
                                       "  p[threadIdx.x] = cg::reduce(tile, p[threadIdx.x], cg::plus<int>());"),
    "cooperative_groups_scan": _over("cooperative_groups.h cooperative_groups/scan.h", "int *p",
                                     "namespace cg = cooperative_groups;\n"
                                     "  auto tile = cg::tiled_partition<32>(cg::this_thread_block());\n"
                                     "  p[threadIdx.x] = cg::inclusive_scan(tile, p[threadIdx.x]);"),
    "cuda_barrier": _over("cuda/barrier", "int *p",
                          "__shared__ cuda::barrier<cuda::thread_scope_block> bar;\n"
                          "  if (!threadIdx.x) init(&bar, blockDim.x);\n  __syncthreads();\n"
                          "  bar.arrive_and_wait();\n  p[threadIdx.x] = 1;"),
    "cuda_pipeline": _over("cuda/pipeline", "int *p",
                           "auto pipe = cuda::make_pipeline();\n  __shared__ int s[32];\n  pipe.producer_acquire();\n"
                           "  cuda::memcpy_async(&s[threadIdx.x], &p[threadIdx.x], sizeof(int), pipe);\n"
                           "  pipe.producer_commit();\n  pipe.consumer_wait();\n  p[threadIdx.x] = s[0];"),
    "cuda_atomic": _over("cuda/atomic", "int *p",
                         "cuda::atomic_ref<int, cuda::thread_scope_device> ref(*p);\n  ref.fetch_add(1);"),
    "cuda_ptx": _over("cuda/ptx", "unsigned *p", "p[threadIdx.x] = cuda::ptx::get_sreg_laneid();"),
    "std_type_traits": _over("cuda/std/type_traits cuda/std/cstdint", "cuda::std::uint32_t *p",
                             "p[threadIdx.x] = cuda::std::is_same<int, cuda::std::int32_t>::value;"),
    "std_tuple": _over("cuda/std/tuple cuda/std/utility", "int *p",
                       "auto t = cuda::std::make_tuple(p[0], 2.0f);\n  p[threadIdx.x] = cuda::std::get<0>(t);"),
    "std_array": _over("cuda/std/array", "int *p",
                       "cuda::std::array<int, 4> a{1, 2, 3, p[0]};\n  p[threadIdx.x] = a[threadIdx.x & 3];"),
    "std_complex": _over("cuda/std/complex", "cuda::std::complex<float> *p", "p[threadIdx.x] *= p[0];"),
    "std_span": _over("cuda/std/span", "int *p, int n", "cuda::std::span<int> s(p, n);\n  s[0] = (int)s.size();"),
    "std_mdspan": _over("cuda/std/mdspan", "float *p",
                        "cuda::std::mdspan<float, cuda::std::extents<int, 4, 8>> m(p);\n  m(1, 2) = m(3, 4);"),
    "std_limits": _over("cuda/std/limits", "float *p", "*p = cuda::std::numeric_limits<float>::infinity();"),
    "std_functional": _over("cuda/std/functional", "int *p", "*p = cuda::std::plus<int>()(p[0], p[1]);"),
    "std_optional": _over("cuda/std/optional", "int *p", "cuda::std::optional<int> o(p[0]);\n  *p = o.value_or(3);"),
    "std_bit": _over("cuda/std/bit", "unsigned *p", "*p = cuda::std::popcount(p[0]);"),
    "thrust_functional": _over("thrust/functional.h", "int *p", "*p = thrust::maximum<int>()(p[0], p[1]);"),
    "thrust_complex": _over("thrust/complex.h", "thrust::complex<float> *p", "p[0] = thrust::exp(p[1]);"),
    "thrust_tuple": _over("thrust/tuple.h", "int *p", "*p = thrust::get<0>(thrust::make_tuple(p[1], 2.0f));"),
    "cub_warp_reduce": _over("cub/warp/warp_reduce.cuh", "int *p",
                             "using Warp = cub::WarpReduce<int>;\n  __shared__ typename Warp::TempStorage s;\n"
                             "  int sum = Warp(s).Sum(p[threadIdx.x]);\n  if (!threadIdx.x) *p = sum;"),
    "cub_warp_scan": _over("cub/warp/warp_scan.cuh", "int *p",
                           "using Warp = cub::WarpScan<int>;\n  __shared__ typename Warp::TempStorage s;\n"
                           "  int sum;\n  Warp(s).InclusiveSum(p[threadIdx.x], sum);\n  p[threadIdx.x] = sum;"),
    "cub_block_reduce": _cub("reduce", "BlockReduce<int, 128>", "items[0] = Block(storage).Sum(items);"),
    "cub_block_scan": _cub("scan", "BlockScan<int, 128>", "Block(storage).ExclusiveSum(items, items);"),
    "cub_block_sort": _cub("radix_sort", "BlockRadixSort<int, 128, 4>", "Block(storage).Sort(items);"),
    "cub_block_exchange": _cub("exchange", "BlockExchange<int, 128, 4>",
                               "Block(storage).BlockedToStriped(items, items);"),
    "cub_block_merge_sort": _cub("merge_sort", "BlockMergeSort<int, 128, 4>",
                                 "Block(storage).Sort(items, [](int a, int b) { return a < b; });"),
    "assert_off": 'extern "C" __global__ void k(int *p) { assert(p[1]); *p = 1; }\n',
    # What both must refuse.
    "refused_missing_header": _over("no/such/header.h", "int *p", "*p = 1;"),
    "refused_error_directive": "#include <cuda_fp16.h>\n#ifdef CUDART_VERSION_NEVER\n#else\n#error not here\n#endif\n"
                               'extern "C" __global__ void k() {}\n',
    "refused_host_code": "int main() { return 0; }\nextern \"C\" __global__ void k(int *p) { *p = main(); }\n",
    "warned_unused": 'extern "C" __global__ void k(int *p) { int unused; *p = 1; }\n',
}

_OPTIONS: dict[str, list[str]] = {
    "fp16": ["--use_fast_math"],
    "bf16": ["-lineinfo"],
    "cuda_atomic": ["--std=c++20"],
    "complex": ["--maxrregcount=32", "--fmad=false"],
    "std_bit": ["--std=c++20", "--diag-suppress=177"],
    "vector_types": ["-G"],
    "math_constants": ["-default-device", "--restrict"],
}

SMALL = ("fp16", "fp8", "cooperative_groups", "cuda_barrier", "cub_block_reduce", "mma", "refused_missing_header",
         "refused_error_directive", "warned_unused")


def cases() -> list[dict[str, Any]]:
    return [{"name": f"toolkit/{name}", "text": text, "entry": "k", "options": _OPTIONS.get(name, []),
             "defines": {"NDEBUG": "1"} if name == "assert_off" else {}} for name, text in _TEXTS.items()]


def small_cases() -> list[dict[str, Any]]:
    return [case for case in cases() if case["name"].split("/")[1] in SMALL]
