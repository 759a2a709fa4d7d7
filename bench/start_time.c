/* One process, from its start to the end of its first launch of attention. It prints the steady clock's seconds at the
 * end, and the program that started it (start_time.py) subtracts its own.
 *
 *   start_time floor CUBIN   by the driver alone: read the file, load it, launch it; nothing can be faster
 *   start_time kjit          through kjit, with what the environment gives it: a bundle, a cache, or the compiler */
#include <kjit/kjit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flash_forward/params.h"
#include "support/card.h"

#define SEQ    512
#define HEADS  8
#define HEAD   128
#define BYTES  ((size_t)SEQ * HEADS * HEAD * 2)
#define CONFIG "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"

/* The geometry of CONFIG, as plain_geometry() gives it. */
#define ROWS_PER_BLOCK 64
#define THREADS        128
#define SHARED_BYTES   (3 * 64 * HEAD * 2)

static void *read_file(const char *path) {
  static char data[1 << 20];
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  const size_t bytes = fread(data, 1, sizeof data, file);
  fclose(file);
  return bytes > 0 ? data : NULL;
}

static void fill_params(struct flash_forward_params *params, CUdeviceptr memory) {
  const struct flash_forward_strides strides = {(long long)SEQ * HEADS * HEAD, (long long)HEADS * HEAD, HEAD};
  *params = (struct flash_forward_params){.seq_q = SEQ, .seq_kv = SEQ};
  params->q = params->k = params->v = (void *)(uintptr_t)memory; /* NOLINT: a device address */
  params->o = (void *)(uintptr_t)(memory + BYTES);
  params->q_stride = params->k_stride = params->v_stride = params->o_stride = strides;
  params->scale = (float)(1 / sqrt(HEAD));
  params->scale_log2 = (float)(1 / sqrt(HEAD) * 1.4426950408889634);
}

static kjit_status launch_by_hand(const struct card *card, CUdeviceptr memory, const char *path, kjit_error *error) {
  CUmodule module;
  CUfunction function;
  struct flash_forward_params params;
  void *arguments[] = {&params};
  const void *cubin = read_file(path);
  if (!cubin) return card_fail(error, KJIT_ERR_IO, "%s cannot be read", path);
  fill_params(&params, memory);
  kjit_status status = card_result(card, card->api.module_load(&module, cubin), "cuModuleLoadData", error);
  if (status == KJIT_OK)
    status = card_result(card, card->api.module_function(&function, module, "flash_forward"), "its entry", error);
  if (status == KJIT_OK)
    status = card_result(
        card, card->api.function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES),
        "shared memory", error);
  if (status != KJIT_OK) return status;
  return card_result(card,
                     card->api.launch(function, SEQ / ROWS_PER_BLOCK, HEADS, 1, THREADS, 1, 1, SHARED_BYTES,
                                      card->stream, arguments, NULL),
                     "cuLaunchKernel", error);
}

static kjit_status launch_by_kjit(const struct card *card, CUdeviceptr memory, kjit_error *error) {
  kjit_runtime *runtime; /* lives as long as the process */
  kjit_config config;
  kjit_attention_args args = kjit_attention_args_default();
  void *const in = (void *)(uintptr_t)memory, *const out = (void *)(uintptr_t)(memory + BYTES);
  args.q = args.k = args.v = kjit_tensor_bshd(in, KJIT_FP16, card->ordinal, 1, SEQ, HEADS, HEAD);
  args.o = kjit_tensor_bshd(out, KJIT_FP16, card->ordinal, 1, SEQ, HEADS, HEAD);
  kjit_status status = kjit_config_parse(kjit_family_find("flash_forward"), CONFIG, &config, error);
  if (status == KJIT_OK) status = kjit_runtime_create(&runtime, NULL, error);
  return status == KJIT_OK ? kjit_attention_forward(runtime, &config, &args, card->stream, error) : status;
}

int main(int argc, char **argv) {
  struct card card = {0};
  struct card_buffer memory = {0};
  struct timespec now;
  kjit_error error = {0};
  const int by_hand = argc == 3 && strcmp(argv[1], "floor") == 0;
  if (!by_hand && (argc != 2 || strcmp(argv[1], "kjit") != 0)) return 2;
  if (!card_present(&error)) {
    fprintf(stderr, "skipped: %s\n", error.message);
    return 3;
  }
  kjit_status status = card_open(&card, 0, &error);
  if (status == KJIT_OK) status = card_buffer_create(&card, &memory, 2 * BYTES, &error);
  if (status == KJIT_OK)
    status = by_hand ? launch_by_hand(&card, memory.address, argv[2], &error)
                     : launch_by_kjit(&card, memory.address, &error);
  if (status == KJIT_OK) status = card_synchronize(&card, card.stream, &error);
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (status != KJIT_OK) fprintf(stderr, "%s\n", error.message);
  printf("%lld.%09ld\n", (long long)now.tv_sec, now.tv_nsec);
  return status == KJIT_OK ? 0 : 1;
}
