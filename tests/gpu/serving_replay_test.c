/* Decoding from a cache of e4m3 gives the same bits at each launch, of so many blocks of threads that TMA writes the
 * next keys and values as soon as their place is given back. A place that is given back while a warp still reads it
 * showed in one of a hundred to one of ten of these launches. */
#include <stdlib.h>
#include <string.h>

#include "gpu_fixture.h"
#include "support/test.h"

enum { BATCH = 64, HEADS = 32, HEADS_KV = 8, KEYS = 8192, PAGE = 64, PAGES = KEYS / PAGE, LAUNCHES = 120 };

/* The cache is filled again and again with one chunk of random bytes. The chunk ends inside of a page, so that
 * neighbouring pages differ. */
enum { CHUNK_BYTES = (8 << 20) + 4096 };

struct replay {
  struct gpu_fixture *fixture;
  int rows, columns;
  struct card_buffer q, o, cache, lengths, table;
};

static void *address(struct card_buffer buffer) {
  return (void *)(uintptr_t)buffer.address;
}

static struct card_buffer make(struct gpu_fixture *f, size_t bytes) {
  struct card_buffer buffer = {0};
  kjit_error error = {0};
  assert_status(KJIT_OK, card_buffer_create(&f->card, &buffer, bytes, &error), &error);
  return buffer;
}

static void write_to(struct gpu_fixture *f, CUdeviceptr to, const void *from, size_t bytes) {
  kjit_error error = {0};
  assert_status(KJIT_OK, card_write(&f->card, to, from, bytes, &error), &error);
}

static void fill_cache(struct replay *r) {
  struct gpu_fixture *const f = r->fixture;
  uint8_t *const chunk = malloc(CHUNK_BYTES);
  assert_non_null(chunk);
  for (size_t i = 0; i < CHUNK_BYTES; i += 8) {
    const uint64_t bits = random_next(&f->random) & 0xbfbfbfbfbfbfbfbfu; /* below 2, and no NaN */
    memcpy(chunk + i, &bits, 8);
  }
  for (size_t at = 0; at < r->cache.bytes; at += CHUNK_BYTES)
    write_to(f, r->cache.address + at, chunk, r->cache.bytes - at < CHUNK_BYTES ? r->cache.bytes - at : CHUNK_BYTES);
  free(chunk);
}

/* bf16 between -2 and 2. */
static void fill_q(struct replay *r) {
  const size_t count = r->q.bytes / 2;
  uint16_t *const q = malloc(r->q.bytes);
  assert_non_null(q);
  for (size_t i = 0; i < count; i++)
    q[i] = (uint16_t)((random_next(&r->fixture->random) & 0x80ff) | 0x3f00);
  write_to(r->fixture, r->q.address, q, r->q.bytes);
  free(q);
}

static void fill_tables(struct replay *r) {
  static int32_t lengths[BATCH], table[BATCH * PAGES];
  for (int i = 0; i < BATCH; i++)
    lengths[i] = KEYS;
  for (int i = 0; i < BATCH * PAGES; i++)
    table[i] = BATCH * PAGES - 1 - i;
  write_to(r->fixture, r->lengths.address, lengths, sizeof lengths);
  write_to(r->fixture, r->table.address, table, sizeof table);
}

static kjit_tensor tensor_of(struct replay *r, void *data, int32_t dtype, const int64_t shape[3]) {
  kjit_tensor out = {.data = data, .dtype = dtype, .device = r->fixture->card.ordinal, .rank = 4};
  const int64_t all[4] = {shape[0], shape[1], shape[2], r->columns};
  int64_t stride = 1;
  for (int i = 3; i >= 0; i--) {
    out.shape[i] = all[i];
    out.stride[i] = stride;
    stride *= all[i];
  }
  return out;
}

static kjit_attention_serving_args args_of(struct replay *r) {
  kjit_attention_serving_args args = kjit_attention_serving_args_default();
  const int64_t rows[3] = {BATCH, r->rows, HEADS}, pages[3] = {(int64_t)BATCH * PAGES, PAGE, HEADS_KV};
  args.batch = BATCH;
  args.max_seqlen_q = r->rows;
  args.q = tensor_of(r, address(r->q), KJIT_BF16, rows);
  args.o = tensor_of(r, address(r->o), KJIT_BF16, rows);
  args.k = tensor_of(r, address(r->cache), KJIT_FP8_E4M3, pages);
  args.v = tensor_of(r, (char *)address(r->cache) + r->cache.bytes / 2, KJIT_FP8_E4M3, pages);
  args.seqused_k = address(r->lengths);
  args.page_table = address(r->table);
  args.page_table_stride = args.max_pages = PAGES;
  return args;
}

/* Launch, and read O, which held other values before. */
static void launch(struct replay *r, const kjit_attention_serving_args *args, uint8_t *o) {
  struct gpu_fixture *const f = r->fixture;
  kjit_error error = {0};
  assert_status(KJIT_OK, card_poison(&f->card, r->o, f->card.stream, &error), &error);
  assert_status(KJIT_OK, kjit_attention_serving(f->runtime, args, f->card.stream, &error), &error);
  assert_status(KJIT_OK, card_synchronize(&f->card, f->card.stream, &error), &error);
  assert_status(KJIT_OK, card_read(&f->card, o, r->o.address, r->o.bytes, &error), &error);
}

static void expect_the_same_bits(void **state, int rows, int columns) {
  struct replay r = {.fixture = gpu_require(state), .rows = rows, .columns = columns};
  struct gpu_fixture *const f = r.fixture;
  const size_t o_bytes = (size_t)BATCH * (size_t)rows * HEADS * (size_t)columns * 2;
  r.q = make(f, o_bytes);
  r.o = make(f, o_bytes);
  r.cache = make(f, (size_t)2 * BATCH * KEYS * HEADS_KV * (size_t)columns);
  r.lengths = make(f, BATCH * sizeof(int32_t));
  r.table = make(f, BATCH * PAGES * sizeof(int32_t));
  fill_cache(&r);
  fill_q(&r);
  fill_tables(&r);
  const kjit_attention_serving_args args = args_of(&r);
  uint8_t *const first = malloc(2 * o_bytes), *const again = first + o_bytes;
  assert_non_null(first);
  int different = 0;
  launch(&r, &args, first);
  for (int i = 1; i < LAUNCHES; i++) {
    launch(&r, &args, again);
    different += memcmp(first, again, o_bytes) != 0;
  }
  free(first);
  struct card_buffer *const buffers[] = {&r.q, &r.o, &r.cache, &r.lengths, &r.table};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    card_buffer_destroy(&f->card, buffers[i]);
  if (different) fail_msg("%d of %d launches gave other bits than the first", different, LAUNCHES - 1);
}

static void test_serving_replay__one_row_of_64_columns(void **state) {
  expect_the_same_bits(state, 1, 64);
}

static void test_serving_replay__four_rows_of_64_columns(void **state) {
  expect_the_same_bits(state, 4, 64);
}

static void test_serving_replay__one_row_of_128_columns(void **state) {
  expect_the_same_bits(state, 1, 128);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_replay__one_row_of_64_columns),
      cmocka_unit_test(test_serving_replay__four_rows_of_64_columns),
      cmocka_unit_test(test_serving_replay__one_row_of_128_columns),
  };
  return cmocka_run_group_tests_name("gpu_serving_replay", tests, gpu_setup, gpu_teardown);
}
