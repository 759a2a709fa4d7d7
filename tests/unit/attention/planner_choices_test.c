/* What the planner chooses for 20,000 drawn problems on every card that is known by name, as a table: how many each
 * family takes, and a digest of all configs. A change of a rule has to change the rows of the cards that it is for, and
 * no others; a change that says the same rules in another way changes none.
 *
 * Problems are drawn as bench/attention_race.py draws them, by a generator of the test's own. The row that was found is
 * printed where it is another one. With KJIT_TEST_CHOICES=FILE each problem and its choice are a line of FILE: the
 * lines of two builds that differ are the problems that a change is about. */
#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kjit/family.h>
#include <kjit/kernel.h>

#include "attention/attention_family.h"
#include "base/hash.h"
#include "base/integer.h"
#include "family/family.h"

enum { PROBLEMS = 20000, LARGE_PROBLEMS = 4000 };

/* The cards, by kjit_device_known(); the counts are in the order of attention_families. */
/* clang-format off */
static const struct row {
  const char *card;
  int counts[ATTENTION_FAMILY_COUNT];
  uint64_t digest;
} rows[] = {
    {"A100", {0, 0, 0, 0, 20000}, 0x62c4b476d9a03618},
    {"L40S", {0, 0, 0, 0, 20000}, 0xa3b5c3bfb887a9a3},
    {"H100 PCIe", {912, 2101, 4291, 12696, 0}, 0x684b243c093bca28},
    {"H100", {1008, 2080, 4230, 12682, 0}, 0x557f0e72b90421b8},
    {"H20", {857, 2053, 4828, 12262, 0}, 0xdfafe6de2ee8eb78},
    {"H200", {1267, 1677, 4591, 12465, 0}, 0x9f6eeab56cddab05},
    {"GH200", {1267, 1678, 4591, 12464, 0}, 0xdcebb79554e24e63},
    {"B200", {0, 0, 0, 0, 20000}, 0x62c4b476d9a03618},
};
/* clang-format on */

/* ---- Problems ---- */

static uint64_t state_of_draws;

static uint64_t draw(void) { /* splitmix64 */
  uint64_t bits = state_of_draws += 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

/* A number from 0 to count - 1. */
static int64_t below(int64_t count) {
  return (int64_t)(draw() % (uint64_t)count);
}

/* A number from least to least * 2^octaves, of each octave as often. */
static int64_t of_octaves(int64_t least, int octaves) {
  const int64_t first = least << below(octaves);
  return first + below(first);
}

#define ANY_OF(array) ((array)[below((int64_t)(sizeof(array) / sizeof *(array)))])

static int64_t draw_columns(void) {
  static const int64_t common[] = {64, 128}, known[] = {32, 72, 80, 96, 112, 160, 192, 256};
  const int64_t kind = below(10);
  return kind < 6 ? ANY_OF(common) : kind < 8 ? ANY_OF(known) : 32 + 8 * below(29);
}

/* Queries and keys of training and prefill, cross attention, decoding, chunks of a prefill, and short sequences. */
static void draw_lengths(kjit_attention_problem *problem) {
  static const int64_t of_decoding[] = {1, 1, 1, 2, 4, 8, 16};
  const int64_t use = below(100), length = of_octaves(16, 12);
  problem->batch = of_octaves(1, 10);
  problem->seq_q = problem->seq_kv = length;
  if (use < 45) {
    problem->flags = below(2) ? KJIT_ATTENTION_CAUSAL : 0;
  } else if (use < 60) {
    problem->seq_kv = of_octaves(16, 12);
  } else if (use < 80) {
    problem->seq_q = ANY_OF(of_decoding);
    problem->seq_kv = of_octaves(64, 10);
  } else if (use < 88) {
    problem->seq_q = length >> (1 + below(4));
    problem->flags = KJIT_ATTENTION_CAUSAL;
  } else {
    problem->seq_q = problem->seq_kv = of_octaves(16, 4);
    problem->batch = of_octaves(64, 4);
  }
}

/* Halve the batch, then the lengths, until a GPU takes some milliseconds. */
static void shrink(kjit_attention_problem *problem) {
  const int64_t most_scores = INT64_C(8000000000), most_rows = 1 << 21;
  for (;;) {
    const int64_t heads = problem->batch * problem->heads_q, longest = integer_max(problem->seq_q, problem->seq_kv);
    if (heads * problem->seq_q * problem->seq_kv <= most_scores && heads * longest <= most_rows) return;
    if (problem->batch > 1) {
      problem->batch /= 2;
    } else {
      problem->seq_q = (problem->seq_q + 1) / 2;
      problem->seq_kv = (problem->seq_kv + 1) / 2;
    }
  }
}

static kjit_attention_problem draw_problem(void) {
  static const int64_t heads[] = {1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128};
  static const int64_t groups[] = {1, 1, 1, 2, 4, 8, 16};
  kjit_attention_problem problem = kjit_attention_problem_default();
  int64_t group = 0;
  problem.dtype = below(2) ? KJIT_BF16 : KJIT_FP16;
  problem.head_dim = problem.head_dim_v = draw_columns();
  problem.heads_q = ANY_OF(heads);
  do {
    group = ANY_OF(groups);
  } while (problem.heads_q % group != 0);
  problem.heads_kv = problem.heads_q / group;
  draw_lengths(&problem);
  shrink(&problem);
  return problem;
}

/* ---- Choices ---- */

/* A choice as bytes: problem, family and config, and the family and config of what is launched in front. */
struct chosen {
  kjit_config config, front;
};

static struct chosen choose(const kjit_attention_problem *problem, const kjit_device_info *card) {
  struct chosen chosen;
  kjit_error error;
  assert_status(KJIT_OK, kjit_attention_choose_for(problem, card, &chosen.config, &error), &error);
  assert_status(KJIT_OK, kjit_attention_front(&chosen.config, problem, card, &chosen.front, &error), &error);
  return chosen;
}

static int family_index(const kjit_config *config) {
  int index = 0;
  while (attention_families[index]->family != config->family)
    index++;
  return index;
}

static uint64_t add_config(uint64_t digest, const kjit_config *config) {
  uint64_t words[2] = {digest, 0};
  if (config->family) {
    words[1] = hash_64(config->values, config->family->table.config_bytes);
    words[1] ^= hash_64(kjit_family_name(config->family), strlen(kjit_family_name(config->family)));
  }
  return hash_64(words, sizeof words);
}

static void write_line(FILE *file, const char *card, const kjit_attention_problem *problem,
                       const struct chosen *chosen) {
  char text[KJIT_CONFIG_TEXT_MAX];
  kjit_error error;
  assert_status(KJIT_OK, kjit_config_print(&chosen->config, 0, text, sizeof text, &error), &error);
  fprintf(file, "%s, %s %" PRId64 " x %" PRId64 "/%" PRId64 " x %" PRId64 "/%" PRId64 " x %" PRId64 "%s: %s %s%s%s\n",
          card, problem->dtype == KJIT_BF16 ? "bf16" : "fp16", problem->batch, problem->heads_q, problem->heads_kv,
          problem->seq_q, problem->seq_kv, problem->head_dim, problem->flags ? " causal" : "",
          kjit_family_name(chosen->config.family), text, chosen->front.family ? " behind " : "",
          chosen->front.family ? kjit_family_name(chosen->front.family) : "");
}

static struct row choose_all(const char *name, const kjit_device_info *card, FILE *file) {
  struct row row = {.card = name};
  state_of_draws = 1;
  for (int i = 0; i < PROBLEMS; i++) {
    const kjit_attention_problem problem = draw_problem();
    const struct chosen chosen = choose(&problem, card);
    row.counts[family_index(&chosen.config)]++;
    row.digest = add_config(add_config(row.digest, &chosen.config), &chosen.front);
    if (file) write_line(file, name, &problem, &chosen);
  }
  return row;
}

static bool is_equal(const struct row *a, const struct row *b) {
  return !strcmp(a->card, b->card) && !memcmp(a->counts, b->counts, sizeof a->counts) && a->digest == b->digest;
}

static kjit_device_info card_of(const char *name) {
  kjit_device_info card = {.struct_size = sizeof card};
  kjit_error error;
  assert_status(KJIT_OK, kjit_device_find(name, &card, &error), &error);
  return card;
}

static void test_planner__chooses_what_the_table_says_on_every_card(void **state) {
  const char *const path = getenv("KJIT_TEST_CHOICES"), *name;
  FILE *const file = path ? fopen(path, "w") : NULL;
  uint32_t count = 0, others = 0;
  (void)state;
  for (; (name = kjit_device_known(count)) != NULL; count++) {
    const kjit_device_info card = card_of(name);
    const struct row found = choose_all(name, &card, file);
    if (count < sizeof rows / sizeof *rows && is_equal(&found, &rows[count])) continue;
    others++;
    print_message("    {\"%s\", {%d, %d, %d, %d, %d}, 0x%016" PRIx64 "},\n", name, found.counts[0], found.counts[1],
                  found.counts[2], found.counts[3], found.counts[4], found.digest);
  }
  if (file) assert_int_equal(0, fclose(file));
  assert_int_equal(count, sizeof rows / sizeof *rows);
  if (others > 0) fail_msg("%u of %u cards have other choices than the table says", others, count);
}

/* ---- Sizes at the ends of their ranges ---- */

/* One, the largest that is allowed, or anything between: as often short ones. */
static int64_t draw_extreme(int64_t most) {
  const int64_t kind = below(4), value = kind == 2 ? below(most) + 1 : below(INT64_C(1) << below(31)) + 1;
  return kind == 0 ? 1 : kind == 1 ? most : integer_min(value, most);
}

/* A card of the figures that are the furthest from those of any card, either way. */
static void make_extreme(kjit_device_info *card) {
  card->multiprocessors = below(2) ? 1 : 4096;
  card->memory_gb_s = below(2) ? 50 : 1000000;
  card->load_mhz = below(2) ? 100 : 100000;
  card->tensor_flops = below(2) ? 64 : 1 << 20;
}

static void test_planner__takes_sizes_up_to_the_largest_without_overflow(void **state) {
  const int64_t most_pairs = UINT32_MAX, most_length = INT32_MAX - 255;
  (void)state;
  state_of_draws = 2;
  for (int i = 0; i < LARGE_PROBLEMS; i++) {
    kjit_attention_problem problem = draw_problem();
    problem.seq_q = below(2) ? problem.seq_q : draw_extreme(most_length);
    problem.seq_kv = below(2) ? problem.seq_kv : draw_extreme(most_length);
    problem.heads_kv = below(2) ? problem.heads_kv : draw_extreme(INT32_MAX / 16);
    problem.heads_q = problem.heads_kv << below(5);
    problem.batch = draw_extreme(integer_min(most_pairs / problem.heads_q, INT32_MAX));
    problem.head_dim_v = 8 + 8 * below(32);
    for (uint32_t n = 0; kjit_device_known(n); n++) {
      kjit_device_info card = card_of(kjit_device_known(n));
      if (i % 2) make_extreme(&card);
      const struct chosen chosen = choose(&problem, &card);
      kjit_error error;
      assert_status(KJIT_OK, kjit_config_check(&chosen.config, card.arch_specific, &error), &error);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_planner__chooses_what_the_table_says_on_every_card),
      cmocka_unit_test(test_planner__takes_sizes_up_to_the_largest_without_overflow),
  };
  return cmocka_run_group_tests_name("the planner's choices", tests, NULL, NULL);
}
