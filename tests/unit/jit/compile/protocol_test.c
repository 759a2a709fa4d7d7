#include "jit/compile/protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include "jit/compile/channel.h"
#include "support/test.h"

struct sample {
  struct mem mem;
  struct text payload;
};

static void put_sample(struct text *out) {
  static const char *const options[] = {"--maxrregcount=128", "-w"};
  static const struct source_file files[] = {{.name = "k.cu", .text = "int x;\n", .bytes = 7},
                                             {.name = "a.h", .text = "", .bytes = 0}};
  static const struct source_set set = {.files = files, .count = 2};
  struct jit_request request = {.family = "custom", .label = "l", .entry = "k", .prologue = "#define A\n"};
  strcpy(request.target.name, "sm_90a");
  request.options = options;
  request.option_count = 2;
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

static _Bool always(void *user) {
  (void)user;
  return 1;
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
      PROTOCOL_TEST(test_protocol__cut_request_is_refused),
      PROTOCOL_TEST(test_protocol__something_behind_the_end_is_refused),
      PROTOCOL_TEST(test_protocol__answer_without_kernel_or_error_is_refused),
      PROTOCOL_TEST(test_protocol__changed_payload_is_not_intact),
      PROTOCOL_TEST(test_channel__stops_while_nothing_comes),
      PROTOCOL_TEST(test_channel__noise_is_no_frame),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
