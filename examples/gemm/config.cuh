// The configuration: the prologue's macros as typed constants, checked. No other file reads a macro of the prologue.
#pragma once
#include <kjit/types.cuh>

using namespace kjit;

#if !defined(KJIT_instruction)
#error "KJIT_instruction is not defined: 0 (mma.sync, sm_80 and later) or 1 (wgmma, sm_90a)"
#elif !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_a_layout) || !defined(KJIT_b_layout)
#error "KJIT_a_layout or KJIT_b_layout is not defined: 0 (row-major) or 1 (column-major)"
#elif !defined(KJIT_epilogue)
#error "KJIT_epilogue is not defined: 0 (none), 1 (bias), 2 (bias_gelu), 3 (bias_silu) or 4 (residual)"
#elif !defined(KJIT_BM) || !defined(KJIT_BN) || !defined(KJIT_BK) || !defined(KJIT_stages)
#error "KJIT_BM, KJIT_BN, KJIT_BK or KJIT_stages is not defined: rows, columns and depth of a tile; tiles in flight"
#elif !defined(KJIT_group_m) || !defined(KJIT_blocks_per_sm)
#error "KJIT_group_m or KJIT_blocks_per_sm is not defined: tile rows walked together; blocks that share an SM"
#endif

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

enum Epilogue { kNone, kBias, kBiasGelu, kBiasSilu, kResidual };
constexpr int kEpilogue = KJIT_epilogue;
constexpr bool kHasBias = kEpilogue == kBias || kEpilogue == kBiasGelu || kEpilogue == kBiasSilu;
constexpr bool kHasResidual = kEpilogue == kResidual;

// "K-major": the elements along K are contiguous. Otherwise those along M (of A) or N (of B) are.
constexpr bool kAKMajor = KJIT_a_layout == 0;
constexpr bool kBKMajor = KJIT_b_layout == 1;

constexpr int kBM = KJIT_BM;
constexpr int kBN = KJIT_BN;
constexpr int kBK = KJIT_BK;
constexpr int kStages = KJIT_stages;
constexpr int kGroupM = KJIT_group_m;
constexpr int kBlocksPerSm = KJIT_blocks_per_sm;

static_assert(kEpilogue >= kNone && kEpilogue <= kResidual, "epilogue: 0 to 4");
static_assert(kStages >= 2 && kStages <= 16, "stages: 2 to 16");
static_assert(kGroupM >= 1, "group_m: at least 1");

} // namespace cfg
