/* Counting names in PTX. */
#include "jit/cubin/name_uses.h"
#include "support/test.h"

static uint32_t count_of(const char *ptx, const char *name) {
  struct mem mem;
  struct name_uses uses;
  mem_init(&mem, NULL);
  assert_true(name_uses_init(&uses, &mem, 2));
  name_uses_add(&uses, name, strlen(name));
  name_uses_add(&uses, "another", 7);
  name_uses_count(&uses, ptx, strlen(ptx));
  const uint32_t count = name_uses_find(&uses, name, strlen(name))->count;
  assert_null(name_uses_find(&uses, "absent", 6));
  name_uses_finish(&uses, &mem);
  return count;
}

static void test_name_uses__declaration_alone_counts_once(void **state) {
  (void)state;
  assert_int_equal(1, count_of(".global .align 4 .u32 table = 3;\n", "table"));
  assert_int_equal(0, count_of(".global .align 4 .u32 tables, my_table;\n", "table"));
  assert_int_equal(0, count_of("", "table"));
}

static void test_name_uses__every_other_place_counts_too(void **state) {
  (void)state;
  assert_int_equal(2, count_of(".global .u32 table;\n.global .u64 pointer = table;\n", "table"));
  assert_int_equal(2, count_of(".const .f32 table[4];\n{ ld.const.f32 %f1, [table+4]; }\n", "table"));
  assert_int_equal(2, count_of(".global .u32 table;\n// table", "table"));
}

static void test_name_uses__what_others_can_see_counts_as_used(void **state) {
  (void)state;
  assert_int_equal(2, count_of(".visible .global .align 4 .u32 table;\n", "table"));
  assert_int_equal(2, count_of(".weak .const .u32 table;\n", "table"));
  assert_int_equal(1, count_of(".visible .global .u32 first;\n.global .u32 table;\n", "table"));
  assert_int_equal(0, count_of(".visible .global .u32 first;\n", "visible"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_name_uses__declaration_alone_counts_once),
      cmocka_unit_test(test_name_uses__every_other_place_counts_too),
      cmocka_unit_test(test_name_uses__what_others_can_see_counts_as_used),
  };
  return cmocka_run_group_tests_name("name_uses", tests, NULL, NULL);
}
