// Programmatic dependent launch (sm_90 and later): griddepcontrol.
//
// A kernel that was launched as a dependent of the one before it on the stream may start while that one still runs: as
// soon as every block of the one before has called griddepcontrol_launch_dependents() or ended. What the one before
// writes may be read, and what it reads may be written, behind griddepcontrol_wait() alone. Where a kernel was launched
// in the ordinary way, and before sm_90, both do nothing.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: griddepcontrol"
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Wait until the kernels that this one depends on have ended, and what they wrote is visible. Every thread for itself.
KJIT_DEVICE void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From this thread's block dependents need not wait any longer. Any thread; the first call of a block counts.
KJIT_DEVICE void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

} // namespace kjit
