// <kjit/kjit.hpp> as a C++ program uses it, with kernels that run on the emulator: ownership, typed launches, globals,
// and both forms of errors. Compiled with exceptions and, as a second program, without. Single-threaded.
#include <kjit/kjit.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

// A header of C.
#define _Bool bool
extern "C" {
#include "support/card.h"
}
#undef _Bool

namespace {

int failures = 0;

void expect(bool holds, const char *what, const char *detail = "") {
  if (!holds) failures++;
  std::printf("[ %8s ] %s%s%s\n", holds ? "OK" : "FAILED", what, *detail ? ": " : "", detail);
}

const char source[] = R"(
__constant__ int bias[2];
extern "C" __global__ void axpb(float *out, const float *in, int count, float a, float b) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < count) out[i] = a * in[i] + b + bias[0];
}
)";

kjit::request axpb() {
  return kjit::request("axpb.cu", source).entry("axpb").define("THREADS", 32);
}

// A card with five floats, 0 to 4, and room for five more.
struct world {
  card gpu;
  card_buffer in, out;
};

bool open_world(world &w) {
  kjit_error what = KJIT_ZERO;
  const float values[5] = {0, 1, 2, 3, 4};
  const bool ready = card_open(&w.gpu, 0, &what) == KJIT_OK &&
                     card_buffer_create(&w.gpu, &w.in, sizeof values, &what) == KJIT_OK &&
                     card_buffer_create(&w.gpu, &w.out, sizeof values, &what) == KJIT_OK &&
                     card_write(&w.gpu, w.in.address, values, sizeof values, &what) == KJIT_OK;
  if (!ready) std::fprintf(stderr, "%s\n", what.message);
  return ready;
}

float *data(const card_buffer &buffer) {
  return reinterpret_cast<float *>(buffer.address);
}

void test_errors_without_exceptions(const kjit::runtime &runtime) {
  kjit_error what = KJIT_ZERO;
  const kjit::kernel none = runtime.get_kernel(kjit::request("bad.cu", "nothing").entry("k"), what);
  expect(!none && what.status == KJIT_ERR_COMPILE, "a kernel that does not compile is empty and says why",
         what.message);
  expect(!kjit::artifact(), "an empty artifact is false");
}

void test_launch(const kjit::runtime &runtime, world &w) {
  kjit_error what = KJIT_ZERO;
  const kjit::kernel kernel = runtime.get_kernel(axpb(), what);
  expect(bool(kernel), "a kernel is loaded", what.message);
  if (!kernel) return;
  kjit::kernel copy = kernel; // another reference
  copy = kjit::kernel(copy);
  const kjit::launch one = {{1}, {32}};
  expect(copy.launch(one, w.gpu.stream, what, data(w.out), static_cast<const float *>(data(w.in)), 5, 2.0f, 1.0f),
         "five arguments are launched", what.message);
  (void)card_synchronize(&w.gpu, w.gpu.stream, &what);
  float found[5] = {};
  expect(card_read(&w.gpu, found, w.out.address, sizeof found, &what) == KJIT_OK && found[4] == 9, "and computed");
  what = KJIT_ZERO;
  expect(!copy.launch(one, w.gpu.stream, what, data(w.out), 5) && what.status == KJIT_ERR_INVALID_ARG,
         "a wrong number of arguments is refused", what.message);
}

#ifdef KJIT_HPP_EXCEPTIONS
void test_exceptions(const kjit::runtime &runtime) {
  try {
    (void)runtime.build(kjit::request("bad.cu", "nothing").entry("k").arch("sm_90"));
    expect(false, "a failed build throws");
  } catch (const kjit::error &thrown) {
    expect(thrown.status() == KJIT_ERR_COMPILE && *thrown.what(), "a failed build throws its message", thrown.what());
  }
  const kjit::artifact built = runtime.build(axpb().arch("sm_90"));
  expect(built.key().size() == 64 && !built.cubin().empty(), "an artifact has a key and machine code");
}

void test_request_may_be_moved(const kjit::runtime &runtime) {
  kjit::request first = axpb().arch("sm_90");
  const kjit::request second = std::move(first);
  expect(runtime.build(second).key() == runtime.build(axpb().arch("sm_90")).key(),
         "a moved request is the same request");
}
#endif

} // namespace

int run() {
  kjit_error what = KJIT_ZERO;
  world w = {};
  const kjit::runtime runtime = kjit::runtime::create(kjit_runtime_options_default(), what);
  if (!open_world(w) || !runtime) return EXIT_FAILURE;
  test_errors_without_exceptions(runtime);
  test_launch(runtime, w);
#ifdef KJIT_HPP_EXCEPTIONS
  test_exceptions(runtime);
  test_request_may_be_moved(runtime);
#endif
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main() {
#ifdef KJIT_HPP_EXCEPTIONS
  try {
    return run();
  } catch (...) {
    return EXIT_FAILURE;
  }
#else
  return run();
#endif
}
