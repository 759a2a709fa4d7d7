#include "jit/server/protocol.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "jit/server/channel.h"
#include "support/test.h"

struct sample {
  struct mem mem;
  struct text payload;
};

static void put_sample(struct text *out) {
  static const char *const options[] = {"--maxrregcount=128", "-w"};
  static const char *const names[] = {"n::k<int, 4>", "&n::count"};
  static const struct jit_part parts[] = {{.name = "a.o", .kind = KJIT_PART_LTOIR, .data = "a\0b", .bytes = 3},
                                          {.kind = KJIT_PART_PTX, .data = ".version 8.0", .bytes = 12}};
  static const struct source_file files[] = {{.name = "k.cu", .text = "int x;\n", .bytes = 7},
                                             {.name = "a.h", .text = "", .bytes = 0}};
  static const struct source_set set = {.files = files, .count = 2};
  struct jit_request request = {.family = "custom", .label = "l", .entry = "k", .prologue = "#define A\n"};
  strcpy(request.target.name, "sm_90a");
  request.options = options;
  request.option_count = 2;
  request.names = names;
  request.name_count = 2;
  request.parts = parts;
  request.part_count = 2;
  request.flags = KJIT_BUILD_OBJECT | KJIT_BUILD_NO_COMPILE;
  request.sources = &set;
  wire_request_put(out, &request, "nvrtc-1", WIRE_COMPILE_PCH, 4096);
}

static int setup(void **state) {
  struct sample *sample = calloc(1, sizeof *sample);
  *state = sample;
  if (!sample) return -1;
  mem_init(&sample->mem, NULL);
  text_init(&sample->payload, &sample->mem, 1 << 20);
  put_sample(&sample->payload);
  return sample->payload.failed;
}

static int teardown(void **state) {
  struct sample *sample = *state;
  text_finish(&sample->payload);
  free(sample);
  return 0;
}

static void test_protocol__request_comes_back(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  assert_null(wire_request_read(&wire, &sample->mem, sample->payload.data, sample->payload.bytes));
  assert_int_equal(WIRE_COMPILE_PCH, wire.work);
  assert_int_equal(4096, wire.memory_bytes);
  assert_string_equal("sm_90a", wire.request.target.name);
  assert_int_equal('a', wire.request.target.suffix);
  assert_string_equal("-w", wire.request.options[1]);
  assert_int_equal(2, wire.sources.count);
  assert_string_equal("int x;\n", wire.request.sources->files[0].text);
  wire_request_finish(&wire, &sample->mem);
}

static void test_protocol__names_and_parts_come_back(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  assert_null(wire_request_read(&wire, &sample->mem, sample->payload.data, sample->payload.bytes));
  assert_int_equal(2, wire.request.name_count);
  assert_string_equal("n::k<int, 4>", wire.request.names[0]);
  assert_string_equal("&n::count", wire.request.names[1]);
  assert_int_equal(2, wire.request.part_count);
  assert_string_equal("a.o", wire.request.parts[0].name);
  assert_int_equal(KJIT_PART_LTOIR, wire.request.parts[0].kind);
  assert_int_equal(3, wire.request.parts[0].bytes);
  assert_memory_equal("a\0b", wire.request.parts[0].data, 3);
  assert_null(wire.request.parts[1].name);
  wire_request_finish(&wire, &sample->mem);
}

/* The other flags are the caller's to act on. */
static void test_protocol__only_the_flag_that_says_what_is_made_comes_back(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  assert_null(wire_request_read(&wire, &sample->mem, sample->payload.data, sample->payload.bytes));
  assert_int_equal(KJIT_BUILD_OBJECT, wire.request.flags);
  wire_request_finish(&wire, &sample->mem);
}

/* A request with one part and no source, or with neither. */
static const char *read_parts_alone(struct sample *sample, struct wire_request *wire, uint32_t kind, size_t count) {
  const struct jit_part part = {.kind = kind, .data = "x", .bytes = 1};
  const struct source_set none = {.count = 0};
  struct jit_request request = {.family = "custom", .label = "(parts)", .entry = "", .prologue = "", .sources = &none};
  strcpy(request.target.name, "sm_80");
  request.parts = &part;
  request.part_count = count;
  sample->payload.bytes = 0;
  wire_request_put(&sample->payload, &request, "nvjitlink-1", WIRE_COMPILE, 0);
  return wire_request_read(wire, &sample->mem, sample->payload.data, sample->payload.bytes);
}

static void test_protocol__parts_without_a_source_come_back(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  assert_null(read_parts_alone(sample, &wire, KJIT_PART_FATBIN, 1));
  assert_int_equal(0, wire.request.sources->count);
  assert_int_equal(KJIT_PART_FATBIN, wire.request.parts[0].kind);
  wire_request_finish(&wire, &sample->mem);
}

static void test_protocol__neither_source_nor_part_is_refused(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  assert_string_equal("it has neither a source nor a part", read_parts_alone(sample, &wire, KJIT_PART_PTX, 0));
  wire_request_finish(&wire, &sample->mem);
}

static void test_protocol__part_of_no_kind_is_refused(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  assert_string_equal("a part of it is empty or of no kind", read_parts_alone(sample, &wire, 5, 1));
  wire_request_finish(&wire, &sample->mem);
}

/* Each prefix is refused, and no byte beyond it is read (the copy is of its size, for the sanitizers). */
static void test_protocol__cut_request_is_refused(void **state) {
  struct sample *sample = *state;
  for (size_t bytes = 0; bytes < sample->payload.bytes; bytes++) {
    struct wire_request wire;
    char *cut = malloc(bytes + 1);
    memcpy(cut, sample->payload.data, bytes);
    char *exact = realloc(cut, bytes ? bytes : 1);
    assert_non_null(wire_request_read(&wire, &sample->mem, exact, bytes));
    wire_request_finish(&wire, &sample->mem);
    free(exact);
  }
}

static void test_protocol__something_behind_the_end_is_refused(void **state) {
  struct sample *sample = *state;
  struct wire_request wire;
  text_append_bytes(&sample->payload, "", 1);
  assert_non_null(wire_request_read(&wire, &sample->mem, sample->payload.data, sample->payload.bytes));
  wire_request_finish(&wire, &sample->mem);
}

static void test_protocol__answer_without_kernel_or_error_is_refused(void **state) {
  struct sample *sample = *state;
  const struct compile_result nothing = {0};
  struct compile_result result;
  kjit_error error = {0};
  kjit_status status;
  struct text text;
  text_init(&text, &sample->mem, 4096);
  wire_answer_put(&text, KJIT_OK, &nothing, &error);
  assert_non_null(wire_answer_read(&status, &result, &error, &sample->mem, text.data, text.bytes));
  compile_result_finish(&result, &sample->mem);
  text_finish(&text);
}

/* What an answer with that list of kernels reads as; the list that was read, or NULL, is the caller's to free. */
static const char *read_symbols(struct sample *sample, const char *symbols, char **out) {
  struct compile_result result = {.cubin = (char[]){'c'}, .cubin_bytes = 1, .symbols = (char *)(uintptr_t)symbols},
                        read;
  kjit_error error = {0};
  kjit_status status;
  struct text text;
  text_init(&text, &sample->mem, 4096);
  wire_answer_put(&text, KJIT_OK, &result, &error);
  const char *fault = wire_answer_read(&status, &read, &error, &sample->mem, text.data, text.bytes);
  *out = read.symbols ? strdup(read.symbols) : NULL;
  compile_result_finish(&read, &sample->mem);
  text_finish(&text);
  return fault;
}

static void test_protocol__kernels_of_an_answer_come_back(void **state) {
  static const char list[] = "kernel 32 0 0 1024 256 _Z1k\nname _Z1k n::k<int>\n";
  char *read;
  assert_null(read_symbols(*state, list, &read));
  assert_string_equal(list, read);
  free(read);
  assert_null(read_symbols(*state, NULL, &read));
  const bool none = !read;
  free(read);
  assert_true(none);
}

/* A double would not hold it, and what a worker says is not trusted to be a time that anything took. */
static void test_protocol__every_time_comes_back(void **state) {
  struct sample *sample = *state;
  const struct compile_result result = {.cubin = (char[]){'c'}, .cubin_bytes = 1, .compile_ns = UINT64_MAX - 9};
  struct compile_result read;
  kjit_error error = {0};
  kjit_status status;
  struct text text;
  text_init(&text, &sample->mem, 4096);
  wire_answer_put(&text, KJIT_OK, &result, &error);
  assert_null(wire_answer_read(&status, &read, &error, &sample->mem, text.data, text.bytes));
  assert_true(read.compile_ns == UINT64_MAX - 9);
  compile_result_finish(&read, &sample->mem);
  text_finish(&text);
}

static void test_protocol__malformed_list_of_kernels_is_refused(void **state) {
  char *read;
  assert_string_equal("its list of kernels is malformed", read_symbols(*state, "kernel many\n", &read));
  const bool none = !read;
  free(read);
  assert_true(none);
}

static void test_protocol__changed_payload_is_not_intact(void **state) {
  struct sample *sample = *state;
  struct text frame;
  struct frame_head head;
  text_init(&frame, &sample->mem, 1 << 20);
  frame_put(&frame, FRAME_REQUEST, sample->payload.data, sample->payload.bytes);
  assert_true(frame_read_head(&head, (const uint8_t *)frame.data));
  assert_true(frame_is_intact(&head, frame.data + FRAME_HEAD_BYTES));
  frame.data[FRAME_HEAD_BYTES + 5] ^= 1;
  assert_false(frame_is_intact(&head, frame.data + FRAME_HEAD_BYTES));
  frame.data[11] = 1; /* 16 MiB and more become far more */
  frame.data[15] = 1;
  assert_false(frame_read_head(&head, (const uint8_t *)frame.data));
  text_finish(&frame);
}

static bool always(void *user) {
  (void)user;
  return true;
}

static void test_channel__stops_while_nothing_comes(void **state) {
  struct sample *sample = *state;
  struct frame_head head;
  void *payload;
  int ends[2];
  assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  struct channel channel = {.mem = &sample->mem, .socket = ends[0], .stop = always, .until_ns = INT64_MAX};
  assert_int_equal(CHANNEL_STOPPED, channel_read(&channel, &head, &payload));
  channel.stop = NULL;
  channel.until_ns = channel_now_ns() + 1000000;
  assert_int_equal(CHANNEL_LATE, channel_read(&channel, &head, &payload));
  close(ends[1]);
  assert_int_equal(CHANNEL_CLOSED, channel_read(&channel, &head, &payload));
  close(ends[0]);
}

static void test_channel__noise_is_no_frame(void **state) {
  struct sample *sample = *state;
  char noise[FRAME_HEAD_BYTES] = "Hello, is anybody there?";
  struct frame_head head;
  void *payload;
  int ends[2];
  assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  const struct channel channel = {.mem = &sample->mem, .socket = ends[0], .until_ns = INT64_MAX};
  assert_int_equal(sizeof noise, write(ends[1], noise, sizeof noise));
  assert_int_equal(CHANNEL_DAMAGED, channel_read(&channel, &head, &payload));
  close(ends[0]);
  close(ends[1]);
}

#define PROTOCOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      PROTOCOL_TEST(test_protocol__request_comes_back),
      PROTOCOL_TEST(test_protocol__names_and_parts_come_back),
      PROTOCOL_TEST(test_protocol__only_the_flag_that_says_what_is_made_comes_back),
      PROTOCOL_TEST(test_protocol__parts_without_a_source_come_back),
      PROTOCOL_TEST(test_protocol__neither_source_nor_part_is_refused),
      PROTOCOL_TEST(test_protocol__part_of_no_kind_is_refused),
      PROTOCOL_TEST(test_protocol__cut_request_is_refused),
      PROTOCOL_TEST(test_protocol__something_behind_the_end_is_refused),
      PROTOCOL_TEST(test_protocol__answer_without_kernel_or_error_is_refused),
      PROTOCOL_TEST(test_protocol__kernels_of_an_answer_come_back),
      PROTOCOL_TEST(test_protocol__every_time_comes_back),
      PROTOCOL_TEST(test_protocol__malformed_list_of_kernels_is_refused),
      PROTOCOL_TEST(test_protocol__changed_payload_is_not_intact),
      PROTOCOL_TEST(test_channel__stops_while_nothing_comes),
      PROTOCOL_TEST(test_channel__noise_is_no_frame),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
