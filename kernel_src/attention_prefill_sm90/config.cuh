// The configuration of attention_prefill_sm90. The fields that it shares with attention_sm90 are read and checked by
// that kernel's config.cuh, to which a ragged problem is a causal one: tiles differ in length, and rows may be empty.
#pragma once

#if !defined(KJIT_softcap)
#error "KJIT_softcap is not defined: 0 or 1"
#elif !defined(KJIT_launch_bytes)
#error "KJIT_launch_bytes is not defined: the shared memory that the host launches a block with"
#endif

#define KJIT_causal 1
#define KJIT_split  0

#include "attention_prefill_sm90/layout.h"
#include "attention_sm90/config.cuh"

namespace cfg {

constexpr bool kSoftcap = KJIT_softcap; // scores are capped by a tanh
constexpr int kWarps = kThreads / kLanesPerWarp;

} // namespace cfg
