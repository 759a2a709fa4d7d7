/* Sealed programs of small sources. */
#ifndef KJIT_TESTS_UNIT_SEALED_SAMPLE_H
#define KJIT_TESTS_UNIT_SEALED_SAMPLE_H

#include <stdbool.h>

#include "support/test.h"

#include "base/bytes.h"
#include "base/files/frame.h"
#include "jit/bundle/sealed.h"
#include "jit/bundle/sealed_writer.h"
#include "jit/request/custom_request.h"

struct sealed_sample {
  struct mem mem;
  struct sealed_writer *writer;
  uint8_t *data;
  size_t bytes;
};

static const kjit_source sealed_headers[] = {{.name = "b.h", .text = "#define B 1\n"},
                                             {.name = "a.h", .text = "#include <b.h>\n"}};

static inline void sealed_sample_add(struct sealed_sample *sample, const char *entry, const char *arch,
                                     const char *value) {
  struct custom_request custom;
  const kjit_define define = {"N", value};
  const char *option = "--maxrregcount=64";
  kjit_error error = {0};
  kjit_build_request request = kjit_build_request_default();
  request.arch = arch;
  request.entry = entry;
  request.source = (kjit_source){.name = "k.cu", .text = "#include <a.h>\nextern \"C\" __global__ void k() {}\n"};
  request.headers = sealed_headers;
  request.header_count = 2;
  request.defines = &define;
  request.define_count = 1;
  request.options = &option;
  request.option_count = 1;
  assert_status(KJIT_OK, custom_request_init(&custom, &sample->mem, &request, NULL, &error), &error);
  assert_status(KJIT_OK, sealed_writer_add(sample->writer, &custom.request, custom.request.sources, &error), &error);
  custom_request_finish(&custom);
}

static inline void sealed_sample_begin(struct sealed_sample *sample) {
  *sample = (struct sealed_sample){0};
  (void)mem_init(&sample->mem, NULL);
  sample->writer = sealed_writer_create(&sample->mem, NULL, NULL);
  assert_non_null(sample->writer);
}

static inline void sealed_sample_build(struct sealed_sample *sample, bool with_texts) {
  void *data;
  kjit_error error = {0};
  assert_status(KJIT_OK, sealed_writer_build(sample->writer, with_texts, &data, &sample->bytes, &error), &error);
  mem_free(&sample->mem, sample->data);
  sample->data = data;
}

/* Two kernels for two architectures. */
static inline void sealed_sample_make(struct sealed_sample *sample) {
  sealed_sample_begin(sample);
  sealed_sample_add(sample, "k", "sm_80", "1");
  sealed_sample_add(sample, "l", "sm_80", "1");
  sealed_sample_add(sample, "k", "sm_90a", "1");
  sealed_sample_add(sample, "l", "sm_90a", "1");
  sealed_sample_build(sample, 1);
}

static inline void sealed_sample_end(struct sealed_sample *sample) {
  sealed_writer_destroy(sample->writer);
  mem_free(&sample->mem, sample->data);
}

/* Open these bytes and read every text. */
static inline kjit_status sealed_read_all(const struct mem *mem, const void *data, size_t bytes,
                                          const struct trust *trust, kjit_error *error) {
  static const struct trust nobody;
  struct sealed *sealed;
  kjit_status status = sealed_open(&sealed, mem, NULL, data, bytes, trust ? trust : &nobody, error);
  for (size_t i = 0; status == KJIT_OK && sealed_has_texts(sealed) && i < sealed->unit_count; i++) {
    struct sealed_texts texts;
    status = sealed_texts_read(&texts, sealed, &sealed->units[i], error);
    sealed_texts_finish(&texts, mem);
  }
  sealed_close(sealed);
  return status;
}

#endif
