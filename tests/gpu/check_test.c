/* Who checks the checker: the float64 reference agrees with a plain computation on the host, and outputs that are wrong
 * in one place are found. */
#include "gpu_fixture.h"

#include <math.h>
#include <string.h>

#include "support/half.h"
#include "support/test.h"

static struct trial_problem tiny_problem(struct gpu_fixture *fixture, int32_t dtype, enum problem_layout layout) {
  return (struct trial_problem){.asked = PROBLEM_OF(.dtype = dtype, .batch = 2, .heads_q = 3, .seq_q = 37,
                                                    .seq_kv = layout == LAYOUT_PACKED ? 37 : 70, .head_dim = 48),
                                .layout = layout,
                                .lse = 1,
                                .seed = random_next(&fixture->random)};
}

/* A tensor's allocation on the host. */
struct host_tensor {
  struct tensor_place place;
  uint16_t *elements;
  int32_t dtype;
};

static struct host_tensor copy_tensor(const struct gpu_trial *trial, enum problem_tensor tensor) {
  struct host_tensor host = {.place = problem_place(&trial->data.problem, tensor),
                             .dtype = trial->data.problem.asked.dtype};
  const struct card *card = trial->data.kernels->card;
  const struct check_view view = attention_data_view(&trial->data, tensor);
  const size_t first_bytes = (size_t)host.place.first * sizeof(uint16_t);
  host.elements = test_malloc((size_t)host.place.span * sizeof(uint16_t));
  kjit_error error = {0};
  const kjit_status status = card_read(card, host.elements, (CUdeviceptr)(uintptr_t)view.data - first_bytes,
                                       (size_t)host.place.span * sizeof(uint16_t), &error);
  assert_status(KJIT_OK, status, &error);
  return host;
}

static double value_at(const struct host_tensor *t, int64_t batch, int64_t position, int64_t head, int64_t column) {
  const int64_t *stride = t->place.stride;
  const int64_t at = batch * stride[0] + position * stride[1] + head * stride[2] + column * stride[3];
  return (double)half_to_float(t->dtype, t->elements[t->place.first + at]);
}

/* One output row and its log-sum-exp, by the formula. */
static double compute_row(const struct trial_problem *p, const struct host_tensor tensors[3], int64_t batch,
                          int64_t head, int64_t row, double *out) {
  const int64_t kv_head = head / (p->asked.heads_q / problem_heads_kv(p)), head_dim_v = problem_head_dim_v(p);
  const int64_t last = problem_is_causal(p) ? row + p->asked.seq_kv - p->asked.seq_q : p->asked.seq_kv - 1;
  double sum = 0;
  memset(out, 0, (size_t)head_dim_v * sizeof *out);
  for (int64_t key = 0; key < p->asked.seq_kv && key <= last; key++) {
    double score = 0;
    for (int64_t d = 0; d < p->asked.head_dim; d++)
      score += value_at(&tensors[0], batch, row, head, d) * value_at(&tensors[1], batch, key, kv_head, d);
    const double weight = exp(score * problem_scale(p)); /* below e^10: no maximum is needed */
    sum += weight;
    for (int64_t d = 0; d < head_dim_v; d++)
      out[d] += weight * value_at(&tensors[2], batch, key, kv_head, d);
  }
  for (int64_t d = 0; d < head_dim_v && sum > 0; d++)
    out[d] /= sum;
  return log(sum); /* -inf for a row that sees no key */
}

static void assert_reference_agrees(const struct gpu_trial *trial) {
  const struct trial_problem *p = &trial->data.problem;
  struct host_tensor tensors[3];
  for (int t = 0; t < 3; t++)
    tensors[t] = copy_tensor(trial, (enum problem_tensor)t);
  double *o64 = test_malloc(trial->reference.o64.bytes), row_out[256];
  kjit_error error = {0};
  const kjit_status status =
      card_read(trial->data.kernels->card, o64, trial->reference.o64.address, trial->reference.o64.bytes, &error);
  assert_status(KJIT_OK, status, &error);
  for (int64_t batch = 0; batch < p->asked.batch; batch++)
    for (int64_t head = 0; head < p->asked.heads_q; head++)
      for (int64_t row = 0; row < p->asked.seq_q; row++) {
        const double lse = compute_row(p, tensors, batch, head, row, row_out);
        const double our_lse = trial->reference.lse[(batch * p->asked.heads_q + head) * p->asked.seq_q + row];
        assert_true(isinf(lse) ? our_lse == lse : fabs(lse - our_lse) < 1e-12);
        const double *ours = o64 + ((batch * p->asked.seq_q + row) * p->asked.heads_q + head) * problem_head_dim_v(p);
        for (int64_t d = 0; d < problem_head_dim_v(p); d++)
          assert_true(fabs(row_out[d] - ours[d]) < 1e-12);
      }
  for (int t = 0; t < 3; t++)
    test_free(tensors[t].elements);
  test_free(o64);
}

static void test_reference__agrees_with_the_host_in_every_layout_and_type(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
    const int32_t dtype = layout % 2 ? KJIT_BF16 : KJIT_FP16;
    const struct trial_problem problem = tiny_problem(fixture, dtype, (enum problem_layout)layout);
    struct gpu_trial trial;
    gpu_trial_create(&trial, &fixture->kernels, &problem);
    assert_reference_agrees(&trial);
    gpu_trial_destroy(&trial);
  }
}

/* Causal with more rows than keys, so that some see none, and with fewer; grouped heads; unequal head sizes. */
static void test_reference__agrees_with_the_host_for_masks_groups_and_unequal_heads(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  for (int i = 0; i < 8; i++) {
    struct trial_problem problem = tiny_problem(fixture, KJIT_BF16, i == 7 ? LAYOUT_PACKED : LAYOUT_BHSD);
    problem_set_causal(&problem, i % 2);
    problem.asked.heads_q = 6;
    problem.asked.heads_kv = i % 3 + 1;
    problem.asked.head_dim_v = i < 4 ? 72 : 8;
    if (i == 3) problem.asked.seq_kv = 20;
    struct gpu_trial trial;
    gpu_trial_create(&trial, &fixture->kernels, &problem);
    assert_reference_agrees(&trial);
    gpu_trial_destroy(&trial);
  }
}

/* A trial whose output is the eager 16-bit reference itself: it passes, until it is spoilt. */
static void scene_begin(struct gpu_trial *trial, struct gpu_fixture *fixture) {
  const struct trial_problem problem = tiny_problem(fixture, KJIT_FP16, LAYOUT_BSHD);
  const struct card *card = &fixture->card;
  kjit_error error = {0};
  gpu_trial_create(trial, &fixture->kernels, &problem);
  uint16_t *o16 = test_malloc(trial->reference.o16.bytes);
  const size_t rows = (size_t)(problem.asked.batch * problem.asked.heads_q * problem.asked.seq_q);
  float *lse = test_malloc(rows * sizeof *lse);
  for (size_t i = 0; i < rows; i++)
    lse[i] = (float)trial->reference.lse[i];
  kjit_status status = card_read(card, o16, trial->reference.o16.address, trial->reference.o16.bytes, &error);
  if (status == KJIT_OK)
    status = card_write(card, (CUdeviceptr)(uintptr_t)trial->data.args.o.data, o16, trial->reference.o16.bytes, &error);
  if (status == KJIT_OK)
    status = card_write(card, (CUdeviceptr)(uintptr_t)trial->data.args.lse.data, lse, rows * sizeof *lse, &error);
  assert_status(KJIT_OK, status, &error);
  test_free(o16);
  test_free(lse);
}

static struct attention_verdict judge(const struct gpu_trial *trial) {
  struct attention_verdict verdict;
  kjit_error error = {0};
  const kjit_status status = attention_judge(&trial->data, &trial->reference, &verdict, &error);
  assert_status(KJIT_OK, status, &error);
  return verdict;
}

/* Overwrite `bytes` at `offset` from a tensor's first element. */
static void spoil(const struct gpu_trial *trial, const kjit_tensor *tensor, ptrdiff_t offset, const void *value,
                  size_t bytes) {
  kjit_error error = {0};
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)((char *)tensor->data + offset);
  const kjit_status status = card_write(trial->data.kernels->card, at, value, bytes, &error);
  assert_status(KJIT_OK, status, &error);
}

#define SPOILT_ELEMENT 4321

static void test_judge__the_eager_reference_itself_passes(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_trial trial;
  scene_begin(&trial, fixture);
  const struct attention_verdict verdict = judge(&trial);
  assert_true(verdict.passed);
  assert_true(verdict.error > 0 && verdict.error <= verdict.error16);
  gpu_trial_destroy(&trial);
}

static void test_judge__one_wrong_element_is_found(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_trial trial;
  scene_begin(&trial, fixture);
  const uint16_t wrong = half_from_float(KJIT_FP16, 3.5f);
  spoil(&trial, &trial.data.args.o, 2 * SPOILT_ELEMENT, &wrong, sizeof wrong);
  const struct attention_verdict verdict = judge(&trial);
  assert_false(verdict.passed);
  assert_int_equal(SPOILT_ELEMENT, verdict.worst);
  assert_int_equal(0, verdict.traces.o_stray);
  gpu_trial_destroy(&trial);
}

static void test_judge__one_element_not_written_is_found(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_trial trial;
  scene_begin(&trial, fixture);
  const uint16_t poison = CARD_POISON;
  spoil(&trial, &trial.data.args.o, 2 * SPOILT_ELEMENT, &poison, sizeof poison);
  const struct attention_verdict verdict = judge(&trial);
  assert_false(verdict.passed);
  assert_int_equal(1, verdict.not_finite);
  assert_int_equal(SPOILT_ELEMENT, verdict.worst);
  assert_int_equal(-1, verdict.traces.o_stray);
  gpu_trial_destroy(&trial);
}

static void test_judge__a_word_written_in_front_is_found(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_trial trial;
  scene_begin(&trial, fixture);
  const uint16_t stray = 0;
  spoil(&trial, &trial.data.args.o, -2, &stray, sizeof stray);
  const struct attention_verdict verdict = judge(&trial);
  assert_false(verdict.passed);
  assert_int_equal(1, verdict.traces.o_stray);
  gpu_trial_destroy(&trial);
}

static void test_judge__a_changed_input_is_found(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_trial trial;
  scene_begin(&trial, fixture);
  const uint16_t change = 0x1234;
  spoil(&trial, &trial.data.args.v, 2 * 77, &change, sizeof change);
  const struct attention_verdict verdict = judge(&trial);
  assert_false(verdict.passed);
  assert_true(verdict.traces.inputs_changed);
  gpu_trial_destroy(&trial);
}

static void test_judge__a_wrong_log_sum_exp_is_found(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const float wrong[] = {1.0f, NAN, INFINITY};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct gpu_trial trial;
    scene_begin(&trial, fixture);
    spoil(&trial, &trial.data.args.lse, 4 * 50, &wrong[i], sizeof wrong[i]);
    assert_false(judge(&trial).passed);
    gpu_trial_destroy(&trial);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference__agrees_with_the_host_in_every_layout_and_type),
      cmocka_unit_test(test_reference__agrees_with_the_host_for_masks_groups_and_unequal_heads),
      cmocka_unit_test(test_judge__the_eager_reference_itself_passes),
      cmocka_unit_test(test_judge__one_wrong_element_is_found),
      cmocka_unit_test(test_judge__one_element_not_written_is_found),
      cmocka_unit_test(test_judge__a_word_written_in_front_is_found),
      cmocka_unit_test(test_judge__a_changed_input_is_found),
      cmocka_unit_test(test_judge__a_wrong_log_sum_exp_is_found),
  };
  return cmocka_run_group_tests_name("the check on the GPU", tests, gpu_setup, gpu_teardown);
}
