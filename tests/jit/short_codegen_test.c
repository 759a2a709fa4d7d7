/* What the real compiler makes of attention_short_sm90's configs: those that the planner chooses for usual sizes
 * compile without a word and within a budget of spills. */
#include <stdbool.h>

#include <kjit/attention.h>

#include "codegen.h"

/* Bytes stored and loaded together, of a thread: the scores of 256 keys take 128 registers of 160. */
#define MOST_SPILLED 160

static const struct size {
  int64_t seq_q, seq_kv, head_dim, head_dim_v;
  bool causal;
} sizes[] = {{128, 128, 64, 64, false}, {197, 197, 64, 64, false},   {4096, 77, 64, 64, false},
             {256, 256, 64, 64, true},  {50, 50, 32, 32, true},      {128, 128, 128, 128, true},
             {129, 9, 200, 200, true},  {1024, 77, 160, 160, false}, {64, 64, 192, 128, false},
             {90, 90, 80, 80, false}};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct batch {
  struct codegen codegen;
  kjit_config configs[SIZES];
  atomic_size_t wrong;
};

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

static void check(struct codegen *codegen, size_t index) {
  struct batch *batch = (struct batch *)codegen;
  if (!codegen_is_clean(codegen, &batch->configs[index], "sm_90a", MOST_SPILLED, NULL))
    atomic_fetch_add(&batch->wrong, 1);
}

static void choose_all(struct batch *batch) {
  for (size_t i = 0; i < SIZES; i += (size_t)CODEGEN_STEP) {
    kjit_attention_problem problem = kjit_attention_problem_default();
    kjit_config *config = &batch->configs[batch->codegen.count++];
    kjit_error error;
    problem.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    problem.batch = 512;
    problem.heads_q = 12;
    problem.seq_q = sizes[i].seq_q;
    problem.seq_kv = sizes[i].seq_kv;
    problem.head_dim = sizes[i].head_dim;
    problem.head_dim_v = sizes[i].head_dim_v;
    problem.flags = sizes[i].causal ? KJIT_ATTENTION_CAUSAL : 0;
    assert_status(KJIT_OK, kjit_attention_choose(NULL, &problem, "sm_90a", config, NULL, &error), &error);
    assert_string_equal("attention_short_sm90", kjit_family_name(config->family));
  }
}

static void test_short_codegen__chosen_configs_compile_without_a_word_and_within_the_budget(void **state) {
  struct batch *batch = codegen_or_skip(state);
  choose_all(batch);
  codegen_compile_all(&batch->codegen, check);
  const size_t wrong = atomic_load(&batch->wrong);
  if (wrong) fail_msg("%zu of %zu configs are not clean", wrong, batch->codegen.count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_short_codegen__chosen_configs_compile_without_a_word_and_within_the_budget,
                                      setup, codegen_teardown),
  };
  return cmocka_run_group_tests_name("short_codegen", tests, NULL, NULL);
}
