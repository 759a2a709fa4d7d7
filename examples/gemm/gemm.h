/* The GEMM of this folder from C: gemm.yaml says what its configs are, which one suits a problem and how it is
 * launched; what is left to do here are the tensor maps and the arguments. Public headers of kjit only.
 *
 *   kjit_family_open(&family, "gemm.yaml", &error);
 *   gemm_plan_make(&plan, runtime, family, &call, &device, &error);     once for the sizes of a call
 *   gemm_launch(&plan, runtime, &call, stream, &error);                 as often as wanted, with any addresses
 *   kjit_kernel_release(plan.kernel); */
#ifndef KJIT_EXAMPLES_GEMM_GEMM_H
#define KJIT_EXAMPLES_GEMM_GEMM_H

#include <kjit/kjit.h>

/* One call. What is text is spelt as in gemm.yaml. Leading dimensions in elements, multiples of 8. */
struct gemm_call {
  const char *dtype, *a_layout, *b_layout, *epilogue;
  int32_t m, n, k, lda, ldb, ldc, ldr;
  float alpha;
  uint64_t a, b, c, bias, residual; /* device addresses; 0 where the epilogue reads none */
};

/* What a call's types, layouts and sizes decide. */
struct gemm_plan {
  kjit_config config;
  uint32_t decided_by; /* a kjit_decided_by: a row of the card's tuned table, or the family's `choose` */
  kjit_kernel *kernel; /* released by the caller */
  kjit_launch launch;
};

/* Choose a config for `call` on the current device, which `device` describes, and compile or find and load its kernel.
 * On failure there is nothing to release. */
KJIT_NODISCARD kjit_status gemm_plan_make(struct gemm_plan *plan, kjit_runtime *runtime, const kjit_family *family,
                                          const struct gemm_call *call, const kjit_device_info *device,
                                          kjit_error *error);

/* Enqueue on `stream`. Types, layouts and sizes of `call` are those that the plan was made for. */
KJIT_NODISCARD kjit_status gemm_launch(const struct gemm_plan *plan, kjit_runtime *runtime,
                                       const struct gemm_call *call, CUstream stream, kjit_error *error);

#endif
