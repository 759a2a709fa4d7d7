/* What pending_loads.h says of short pieces of machine code: an arrival is found where a load by ldmatrix is on its
 * way, and nowhere else. */
#include "pending_loads.h"
#include "support/test.h"

#define NONE 7

/* An instruction that frees the barrier `frees` of the scoreboard, or NONE, and waits for those of the mask `waits`. */
struct instruction {
  uint64_t word[2];
};
static struct instruction instruction(unsigned opcode, unsigned frees, unsigned waits) {
  return (struct instruction){{0x7000 | opcode, (uint64_t)frees << 46 | (uint64_t)waits << 52}};
}

static size_t found_in(const struct instruction *code, size_t bytes) {
  return pending_loads_in_code((const unsigned char *)code, bytes);
}

enum { OTHER = 0x816 /* prmt */, LDS = 0x984 };

static void test_pending_loads__an_arrival_before_the_loaded_registers_are_there_is_found(void **state) {
  (void)state;
  const struct instruction code[] = {
      instruction(SASS_LDSM, 0, 0),
      instruction(OTHER, NONE, 2), /* waits for another barrier */
      instruction(SASS_SYNCS_ARRIVE, NONE, 0),
  };
  assert_int_equal(1, found_in(code, sizeof code));
}

static void test_pending_loads__an_arrival_behind_a_use_of_all_loads_is_not(void **state) {
  (void)state;
  const struct instruction code[] = {
      instruction(SASS_LDSM, 0, 0),
      instruction(SASS_LDSM, 5, 0),
      instruction(OTHER, NONE, 1 << 5),
      instruction(OTHER, NONE, 1),
      instruction(SASS_SYNCS_ARRIVE, NONE, 0),
  };
  assert_int_equal(0, found_in(code, sizeof code));
}

static void test_pending_loads__an_arrival_that_waits_itself_is_not(void **state) {
  (void)state;
  const struct instruction code[] = {
      instruction(SASS_LDSM, 3, 0),
      instruction(SASS_SYNCS_ARRIVE, NONE, 1 << 3),
  };
  assert_int_equal(0, found_in(code, sizeof code));
}

static void test_pending_loads__other_loads_are_not_counted(void **state) {
  (void)state;
  const struct instruction code[] = {instruction(LDS, 0, 0), instruction(SASS_SYNCS_ARRIVE, NONE, 0)};
  assert_int_equal(0, found_in(code, sizeof code));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pending_loads__an_arrival_before_the_loaded_registers_are_there_is_found),
      cmocka_unit_test(test_pending_loads__an_arrival_behind_a_use_of_all_loads_is_not),
      cmocka_unit_test(test_pending_loads__an_arrival_that_waits_itself_is_not),
      cmocka_unit_test(test_pending_loads__other_loads_are_not_counted),
  };
  return cmocka_run_group_tests_name("pending_loads", tests, NULL, NULL);
}
