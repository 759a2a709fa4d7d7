/* Cards that are known by name, with their published figures, and what is taken for a card that is not.
 *
 * Figures are those of NVIDIA's data sheets and of the driver's own attributes. The clock under load is on no data
 * sheet, so it is an estimate by the card's power, good for comparing kernels only. An H20's tensor cores are a quarter
 * of an H200's by its data sheet, though its SMs are otherwise alike.
 *
 * Threads: constant data and pure functions. */
#include "runtime/card.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/struct_intake.h"

#define MIB UINT32_C(1048576)
#define GIB UINT64_C(1073741824)

static const struct card {
  const char *name;   /* as people say it */
  const char *device; /* what the driver's name of it begins with */
  const char *arch, *arch_specific;
  uint32_t multiprocessors, shared_per_block, shared_per_multiprocessor, l2_bytes;
  uint64_t memory_bytes;
  uint32_t memory_gb_s, boost_mhz, load_mhz, tensor_flops;
} cards[] = {
    {"A100", "NVIDIA A100", "sm_80", "sm_80", 108, 166912, 167936, 40 * MIB, 80 * GIB, 2039, 1410, 1275, 2048},
    {"L40S", "NVIDIA L40S", "sm_89", "sm_89", 142, 101376, 102400, 96 * MIB, 48 * GIB, 864, 2520, 2100, 1024},
    {"H100 PCIe", "NVIDIA H100 PCIe", "sm_90", "sm_90a", 114, 232448, 233472, 50 * MIB, 80 * GIB, 2039, 1755, 1250,
     4096},
    {"H100", "NVIDIA H100", "sm_90", "sm_90a", 132, 232448, 233472, 50 * MIB, 80 * GIB, 3352, 1980, 1600, 4096},
    {"H20", "NVIDIA H20", "sm_90", "sm_90a", 78, 232448, 233472, 60 * MIB, 96 * GIB, 4023, 1980, 1900, 1024},
    {"H200", CARD_USUAL_DEVICE, "sm_90", "sm_90a", 132, 232448, 233472, CARD_USUAL_L2_BYTES, 141 * GIB,
     CARD_USUAL_MEMORY_GB_S, 1980, CARD_USUAL_LOAD_MHZ, CARD_USUAL_TENSOR_FLOPS},
    {"GH200", "NVIDIA GH200", "sm_90", "sm_90a", 132, 232448, 233472, 60 * MIB, 144 * GIB, 4900, 1980, 1600, 4096},
    {"B200", "NVIDIA B200", "sm_100", "sm_100a", 148, 232448, 233472, 126 * MIB, 180 * GIB, 8000, 1965, 1700, 8192},
};

enum { CARDS = sizeof cards / sizeof *cards };

/* Below these a driver states nothing that could be true. */
enum { LEAST_GB_S = 50, LEAST_KHZ = 500000 };

/* Does a name begin with `prefix`, up to the end of a word? "NVIDIA H20" is not the beginning of "NVIDIA H200". */
static bool begins_with(const char *name, const char *prefix) {
  const size_t bytes = strlen(prefix);
  return !strncasecmp(name, prefix, bytes) && !isalnum((unsigned char)name[bytes]);
}

static const struct card *find_device(const char *device) {
  for (size_t i = 0; i < CARDS; i++)
    if (begins_with(device, cards[i].device)) return &cards[i];
  return NULL;
}

/* Dense 16-bit operations of an SM in a clock, by compute capability (CUDA programming guide and data sheets). */
static uint32_t tensor_flops_of(uint32_t capability) {
  if (capability == 80) return 2048;
  if (capability == 90) return 4096;
  if (capability >= 100 && capability < 120) return 8192;
  return 1024;
}

void card_fill(kjit_device_info *info, uint32_t capability, uint32_t memory_gb_s) {
  const struct card *card = find_device(info->name);
  if (card) {
    info->memory_gb_s = card->memory_gb_s;
    info->load_mhz = card->load_mhz;
    info->tensor_flops = card->tensor_flops;
    return;
  }
  info->memory_gb_s = memory_gb_s >= LEAST_GB_S ? memory_gb_s : 0;
  info->load_mhz = info->clock_khz >= LEAST_KHZ ? info->clock_khz / 1000 * 4 / 5 : 0;
  info->tensor_flops = info->load_mhz ? tensor_flops_of(capability) : 0;
}

kjit_status card_check(const kjit_device_info *info, kjit_error *error) {
  const struct {
    const char *member;
    uint32_t value, least, most;
    bool may_be_unknown;
  } figures[] = {{"multiprocessors", info->multiprocessors, 1, 4096, false},
                 {"memory_gb_s", info->memory_gb_s, LEAST_GB_S, 1000000, true},
                 {"load_mhz", info->load_mhz, 100, 100000, true},
                 {"tensor_flops", info->tensor_flops, 64, 1 << 20, true}};
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    const uint32_t value = figures[i].value;
    if (value >= figures[i].least && value <= figures[i].most) continue;
    if (value == 0 && figures[i].may_be_unknown) continue;
    return error_set(error, KJIT_ERR_INVALID_ARG, "device.%s is %u: must be %sfrom %u to %u", figures[i].member, value,
                     figures[i].may_be_unknown ? "0 or " : "", figures[i].least, figures[i].most);
  }
  return KJIT_OK;
}

static const struct card *find(const char *name) {
  for (size_t i = 0; i < CARDS; i++)
    if (!strcasecmp(name, cards[i].name)) return &cards[i];
  return find_device(name);
}

static kjit_status refuse(const char *name, kjit_error *error) {
  char known[160];
  size_t used = 0;
  for (size_t i = 0; i < CARDS; i++)
    used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", cards[i].name);
  return error_set(error, KJIT_ERR_NOT_FOUND, "name: no card '%.60s' is known; known are %s", name, known);
}

kjit_status kjit_device_find(const char *name, kjit_device_info *info, kjit_error *error) {
  error_clear(error);
  if (!name) return error_invalid(error, "name", "must not be NULL");
  const struct card *card = find(name);
  if (!card) return refuse(name, error);
  kjit_device_info all = {.struct_size = sizeof all,
                          .ordinal = -1,
                          .multiprocessors = card->multiprocessors,
                          .max_shared_per_block = card->shared_per_block,
                          .max_shared_per_multiprocessor = card->shared_per_multiprocessor,
                          .l2_bytes = card->l2_bytes,
                          .memory_bytes = card->memory_bytes,
                          .clock_khz = card->boost_mhz * 1000,
                          .memory_gb_s = card->memory_gb_s,
                          .load_mhz = card->load_mhz,
                          .tensor_flops = card->tensor_flops};
  snprintf(all.name, sizeof all.name, "%s", card->device);
  snprintf(all.arch, sizeof all.arch, "%s", card->arch);
  snprintf(all.arch_specific, sizeof all.arch_specific, "%s", card->arch_specific);
  return struct_fill(info, &all, sizeof all, "info", error);
}

const char *kjit_device_known(uint32_t index) {
  return index < CARDS ? cards[index].name : NULL;
}
