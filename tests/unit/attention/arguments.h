/* Arguments of a call that pass every check, for the tests to break in one place. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_ARGUMENTS_H
#define KJIT_TESTS_UNIT_ATTENTION_ARGUMENTS_H

#include "support/test.h"

#include "attention/attention_arguments.h"
#include "attention/flash/flash_call.h"
#include "attention/flash/flash_choose.h"
#include "attention/flash/flash_family.h"
#include "base/error.h"

#define DEVICE 1

/* Never read: arguments are checked by their description alone. */
static inline void *address(uintptr_t number) {
  return (void *)(number << 20);
}

enum { BATCH = 2, SEQ_Q = 100, SEQ_KV = 70, HEADS = 3, HEAD_DIM = 64 };

static inline kjit_attention_args good_args(void) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, DEVICE, BATCH, SEQ_Q, HEADS, HEAD_DIM);
  args.k = kjit_tensor_bshd(address(2), KJIT_FP16, DEVICE, BATCH, SEQ_KV, HEADS, HEAD_DIM);
  args.v = kjit_tensor_bshd(address(3), KJIT_FP16, DEVICE, BATCH, SEQ_KV, HEADS, HEAD_DIM);
  args.o = kjit_tensor_bshd(address(4), KJIT_FP16, DEVICE, BATCH, SEQ_Q, HEADS, HEAD_DIM);
  return args;
}

static inline kjit_attention_args args_with_lse(void) {
  kjit_attention_args args = good_args();
  args.lse = (kjit_tensor){.data = address(5),
                           .dtype = KJIT_FP32,
                           .device = DEVICE,
                           .rank = 3,
                           .shape = {BATCH, HEADS, SEQ_Q},
                           .stride = {HEADS * SEQ_Q, SEQ_Q, 1}};
  return args;
}

/* What the kernel gets of checked arguments. */
static inline void fill_params(const kjit_attention_args *args, const kjit_attention_problem *problem,
                               struct flash_forward_params *params) {
  const struct flash_variant variant = {.config = {.B_r = 64}};
  const struct attention_launch launch = {.values = (const int32_t *)&variant, .parts = 1};
  struct flash_call call;
  assert_int_equal(flash_attention.prepare(&call, NULL, &launch, args, problem, NULL, NULL), KJIT_OK);
  *params = call.params.base;
}

static inline void expect_ok(const kjit_attention_args *args) {
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, attention_arguments_check(args, DEVICE, &error), &error);
}

static inline void expect_refused(const kjit_attention_args *args, const char *message) {
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_ERR_INVALID_ARG, attention_arguments_check(args, DEVICE, &error), &error);
  assert_string_equal(error.message, message);
}

/* One axis of q, k, v and o. */
static inline void resize(kjit_attention_args *args, uint32_t axis, int64_t length) {
  args->q.shape[axis] = args->k.shape[axis] = args->v.shape[axis] = args->o.shape[axis] = length;
}

#endif
