/* Bundles of small kernels that differ by a number, and ways to spoil them. */
#ifndef KJIT_TESTS_UNIT_BUNDLE_SAMPLE_H
#define KJIT_TESTS_UNIT_BUNDLE_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/bytes.h"
#include "jit/bundle/bundle.h"
#include "jit/bundle/bundle_writer.h"
#include "jit/key/key_reader.h"
#include "support/test.h"

#define SAMPLE_CUBIN_BYTES 3000

/* One kernel's entry, as parts. */
struct sample_kernel {
  char key_text[512], label[32];
  uint8_t cubin[SAMPLE_CUBIN_BYTES];
  struct entry entry;
};

static inline struct entry_text sample_text(const char *data) {
  return (struct entry_text){data, strlen(data)};
}

/* All kernels are much alike, as real ones are. */
static inline void sample_kernel_make(struct sample_kernel *made, unsigned number, const char *arch,
                                      const char *compiler) {
  *made = (struct sample_kernel){0};
  char prologue[48];
  const int prologue_bytes = snprintf(prologue, sizeof prologue, "#define KJIT_NUMBER %u\n", number);
  snprintf(made->key_text, sizeof made->key_text,
           KEY_HEAD "entry-format 1:2\ntarget %zu:%s\nentry 1:k\nprologue %d:%s\nsource 4:k.cu\n"
                    "digest 64:a84f93ca1513a2bbcce2359d3209288b3fc8b9d6298e4177ed430e5a57b14122\ncompiler %zu:%s\n",
           strlen(arch), arch, prologue_bytes, prologue, strlen(compiler), compiler);
  snprintf(made->label, sizeof made->label, "number %03u", number);
  for (size_t i = 0; i < sizeof made->cubin; i++)
    made->cubin[i] = (uint8_t)((i * 2654435761u) >> 13);
  memcpy(made->cubin + 1000, prologue, (size_t)prologue_bytes);
  made->entry.key_text = sample_text(made->key_text);
  made->entry.family = sample_text("custom");
  made->entry.label = sample_text(made->label);
  made->entry.message = sample_text("");
  made->entry.log = sample_text("");
  made->entry.cubin = made->cubin;
  made->entry.cubin_bytes = sizeof made->cubin;
  made->entry.figures = (struct entry_figures){32, 0, 0, 1024, 256, 5000000u + number};
}

static inline void sample_digest(const struct sample_kernel *kernel, struct digest *request) {
  const struct entry_text *text = &kernel->entry.key_text;
  digest_of(request, text->data, key_request_part(text->data, text->bytes));
}

static inline size_t sample_compress(void *user, const void *dictionary, size_t dictionary_bytes, const void *data,
                                     size_t bytes, void *out, size_t capacity) {
  ZSTD_CCtx *state = ZSTD_createCCtx();
  (void)user;
  const size_t packed = ZSTD_compress_usingDict(state, out, capacity, data, bytes, dictionary, dictionary_bytes, 5);
  ZSTD_freeCCtx(state);
  return ZSTD_isError(packed) ? 0 : packed;
}

static const char *const sample_archs[] = {"sm_80", "sm_90a"};

struct sample {
  struct mem mem;
  struct bundle_writer *writer;
  uint8_t *data;
  size_t bytes;
};

static inline void sample_add(struct sample *sample, unsigned number, const char *arch, const char *compiler) {
  struct sample_kernel kernel;
  sample_kernel_make(&kernel, number, arch, compiler);
  assert_status(KJIT_OK, bundle_writer_add_entry(sample->writer, &kernel.entry, NULL), NULL);
}

static inline void sample_build(struct sample *sample) {
  void *data;
  free(sample->data);
  assert_status(KJIT_OK, bundle_writer_build(sample->writer, &data, &sample->bytes, NULL), NULL);
  sample->data = data;
}

static inline void sample_begin(struct sample *sample, kjit_compress_fn compress) {
  *sample = (struct sample){0};
  mem_init(&sample->mem, NULL);
  sample->writer = bundle_writer_create(&sample->mem, compress, NULL);
  assert_non_null(sample->writer);
}

/* `count` kernels for each of the architectures. */
static inline void sample_make(struct sample *sample, unsigned count, kjit_compress_fn compress) {
  sample_begin(sample, compress);
  for (unsigned i = 0; i < count; i++)
    for (size_t a = 0; a < 2; a++)
      sample_add(sample, i, sample_archs[a], "nvrtc-sample");
  sample_build(sample);
}

static inline void sample_end(struct sample *sample) {
  bundle_writer_destroy(sample->writer);
  free(sample->data);
  *sample = (struct sample){0};
}

static inline kjit_status sample_open(const struct sample *sample, const void *data, size_t bytes,
                                      const struct trust *trust, struct bundle **bundle, kjit_error *error) {
  static const struct trust nobody;
  const struct bundle_source source = {NULL, data, bytes};
  return bundle_open(bundle, &sample->mem, &source, trust ? trust : &nobody, error);
}

/* Open and read everything; the status of the first that fails. */
static inline kjit_status sample_read_all(const struct sample *sample, const void *data, size_t bytes,
                                          const struct trust *trust, kjit_error *error) {
  struct bundle *bundle;
  kjit_status status = sample_open(sample, data, bytes, trust, &bundle, error);
  for (uint32_t i = 0; status == KJIT_OK && i < bundle_table(bundle)->record_count; i++) {
    struct entry_image image;
    status = bundle_read(bundle, i, &image, error);
    entry_image_finish(&image, &sample->mem);
  }
  bundle_close(bundle);
  return status;
}

/* Make the table's digest right again, as whoever made a hostile bundle would. */
static inline void sample_seal(uint8_t *data) {
  struct bundle_table table;
  struct digest digest;
  if (bundle_head_check(data, bytes_get_u64(data + BUNDLE_AT_BODY_BYTES), &table)) return;
  digest_of(&digest, data + BUNDLE_HEAD_BYTES, table.bytes - BUNDLE_HEAD_BYTES);
  memcpy(data + BUNDLE_AT_TABLE_DIGEST, digest.bytes, sizeof digest.bytes);
}

static inline uint8_t *sample_group(const struct sample *sample, uint32_t index) {
  return sample->data + BUNDLE_HEAD_BYTES + (size_t)BUNDLE_GROUP_BYTES * index;
}

static inline uint8_t *sample_record(const struct sample *sample, uint32_t index) {
  return sample_group(sample, bytes_get_u32(sample->data + BUNDLE_AT_GROUPS)) + (size_t)BUNDLE_RECORD_BYTES * index;
}

#endif
