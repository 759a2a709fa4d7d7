// Words that say how soon L2 replaces what a load brings, for loads that take one (.level::cache_hint; sm_80 and
// later).
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// What "createpolicy.fractional" makes for a fraction of 1 with L2::evict_normal, and with L2::evict_first for data
// that is read once: it is the first to be replaced, so that what else L2 holds stays. kjit/ptx/tma.cuh has the latter,
// too.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: createpolicy"
constexpr uint64_t kReadOften = 0x1000000000000000;
constexpr uint64_t kReadOnce = 0x12f0000000000000;

} // namespace kjit
