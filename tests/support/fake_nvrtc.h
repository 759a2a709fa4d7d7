/* A compiler that takes no time: an nvrtc_api whose "cubin" is a function of the source text, so that a test can tell
 * whether it was handed the right one. It counts its calls, and fails or takes its time when a test says so. There is
 * one per process, because NVRTC's API has no user pointer. */
#ifndef KJIT_TESTS_SUPPORT_FAKE_NVRTC_H
#define KJIT_TESTS_SUPPORT_FAKE_NVRTC_H

#include <elf.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jit/toolkit/nvrtc.h"

struct fake_nvrtc_counts {
  atomic_long compiles;    /* nvrtcCompileProgram calls */
  atomic_long cubin_bytes; /* size of what comes out; 0: the least */
  atomic_long compile_ms;  /* time that each takes, stoppable by the flow callback, or by setting this to 0 */
  atomic_int reject;       /* nonzero: each source is rejected */
  atomic_int stage;        /* for the test's own use, between its processes */
  const char *entry;       /* name of the kernel in what comes out, at most 40 bytes; NULL: "k" */
  const char *const
      *entries;     /* of these, ended by NULL, the first that the source declares is the kernel; NULL: `entry` */
  const char *slow; /* compile_ms is for sources that name this kernel; NULL: for all */
};

/* The state of this process; a test of several processes points it to memory that they share. */
static struct fake_nvrtc_counts fake_nvrtc_own, *fake_nvrtc_state = &fake_nvrtc_own;
#define fake_nvrtc (*fake_nvrtc_state)

struct _nvrtcProgram {
  char *source;
  char lowered[64]; /* of the last name asked for */
  bool lto;
  int (*flow)(void *, void *);
  void *flow_payload;
};

static inline uint64_t fake_nvrtc_hash(const char *text) {
  uint64_t hash = 14695981039346656037u;
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return hash;
}

/* The ELF header, three section headers and the names take this much of the image; the rest is the kernel's "code". */
#define FAKE_CUBIN_FRAME_BYTES 320
#define FAKE_CUBIN_LEAST_BYTES (FAKE_CUBIN_FRAME_BYTES + 64)

static inline size_t fake_nvrtc_cubin_bytes(void) {
  const size_t bytes = (size_t)atomic_load(&fake_nvrtc.cubin_bytes);
  return bytes > FAKE_CUBIN_LEAST_BYTES ? bytes : FAKE_CUBIN_LEAST_BYTES;
}

/* Does the source have this name in front of a parenthesis? A comment may have it too, in another place. */
static inline bool fake_nvrtc_declares(const char *source, const char *name) {
  for (const char *at = source; (at = strstr(at, name)); at++)
    if (at[strlen(name)] == '(') return true;
  return false;
}

static inline const char *fake_nvrtc_entry(const char *source) {
  for (const char *const *entry = fake_nvrtc.entries; entry && *entry; entry++)
    if (fake_nvrtc_declares(source, *entry)) return *entry;
  return fake_nvrtc.entry ? fake_nvrtc.entry : "k";
}

/* The cubin of a source as NVRTC gets it: an ELF image with one kernel, whose code is made from the source. */
static inline void fake_nvrtc_cubin(const char *source, void *cubin, size_t bytes) {
  char names[64] = "\0";
  const int named = snprintf(names + 1, sizeof names - 1, ".text.%.40s", fake_nvrtc_entry(source));
  memcpy(names + named + 2, ".shstrtab", sizeof ".shstrtab");
  Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT}};
  head.e_type = ET_EXEC;
  head.e_machine = 190; /* EM_CUDA */
  head.e_version = EV_CURRENT;
  head.e_shoff = sizeof head;
  head.e_ehsize = sizeof head;
  head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shnum = 3;
  head.e_shstrndx = 2;
  Elf64_Shdr sections[3] = {{0}};
  sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_offset = FAKE_CUBIN_FRAME_BYTES};
  sections[1].sh_size = bytes - FAKE_CUBIN_FRAME_BYTES;
  sections[2] =
      (Elf64_Shdr){.sh_name = (Elf64_Word)named + 2, .sh_type = SHT_STRTAB, .sh_offset = sizeof head + sizeof sections};
  sections[2].sh_size = sizeof names;
  memset(cubin, 0, bytes);
  memcpy(cubin, &head, sizeof head);
  memcpy((char *)cubin + sizeof head, sections, sizeof sections);
  memcpy((char *)cubin + sizeof head + sizeof sections, names, sizeof names);
  uint64_t state = fake_nvrtc_hash(source);
  for (size_t i = FAKE_CUBIN_FRAME_BYTES; i < bytes; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ((unsigned char *)cubin)[i] = (unsigned char)(state >> 56);
  }
}

/* Wait for the file whose path stands behind this word in the source, to the line's end; no word, no wait. The file
 * "PATH-begun" says that the wait has begun. The wait ends by itself after five minutes, so that
 * a test whose caller should have given up, and did not, fails in place of hanging. */
#define FAKE_WAIT_MS 300000
static inline void fake_wait_for_file(const char *source, const char *word) {
  char path[600], begun[610];
  const char *const found = strstr(source, word);
  if (!found) return;
  const char *const named = found + strlen(word);
  snprintf(path, sizeof path, "%.*s", (int)strcspn(named, "\n"), named);
  snprintf(begun, sizeof begun, "%s-begun", path);
  close(open(begun, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  for (int ms = 0; ms < FAKE_WAIT_MS && access(path, F_OK); ms++)
    (void)usleep(1000);
}

static inline nvrtcResult fake_version(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_create(nvrtcProgram *program, const char *source, const char *name, int header_count,
                                      const char *const *headers, const char *const *header_names) {
  (void)name, (void)header_count, (void)headers, (void)header_names;
  *program = calloc(1, sizeof **program);
  if (!*program) return NVRTC_ERROR_OUT_OF_MEMORY;
  (*program)->source = strdup(source);
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_destroy(nvrtcProgram *program) {
  free((*program)->source);
  free(*program);
  *program = NULL;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_compile(nvrtcProgram program, int option_count, const char *const *options) {
  for (int i = 0; i < option_count; i++)
    program->lto |= !strcmp(options[i], "-dlto") || !strcmp(options[i], "--dlink-time-opt");
  atomic_fetch_add(&fake_nvrtc.compiles, 1);
  const bool is_slow = !fake_nvrtc.slow || strstr(program->source, fake_nvrtc.slow);
  for (long ms = 0; is_slow && ms < atomic_load(&fake_nvrtc.compile_ms); ms++) {
    const struct timespec one = {0, 1000000};
    if (program->flow && program->flow(program->flow_payload, NULL)) return NVRTC_ERROR_CANCELLED;
    nanosleep(&one, NULL);
  }
  return atomic_load(&fake_nvrtc.reject) && is_slow ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}

/* Every expression is a kernel's, and its lowered name is "low" with the letters and digits of the expression. */
static inline nvrtcResult fake_add_name(nvrtcProgram program, const char *expression) {
  (void)program;
  return *expression ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_INPUT;
}

static inline nvrtcResult fake_lowered(nvrtcProgram program, const char *expression, const char **lowered) {
  size_t used = (size_t)snprintf(program->lowered, sizeof program->lowered, "low");
  for (; *expression && used + 1 < sizeof program->lowered; expression++)
    if ((*expression | 32) >= 'a' && (*expression | 32) <= 'z') program->lowered[used++] = *expression;
  program->lowered[used] = '\0';
  *lowered = program->lowered;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_ltoir_size(nvrtcProgram program, size_t *bytes) {
  *bytes = program->lto ? strlen(program->source) : 0;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_ltoir(nvrtcProgram program, char *ltoir) {
  memcpy(ltoir, program->source, strlen(program->source));
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_cubin_size(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = fake_nvrtc_cubin_bytes();
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_cubin(nvrtcProgram program, char *cubin) {
  fake_nvrtc_cubin(program->source, cubin, fake_nvrtc_cubin_bytes());
  return NVRTC_SUCCESS;
}

static inline const char *fake_log_text(void) {
  return atomic_load(&fake_nvrtc.reject) ? "k.cu(1): error: rejected by the fake\n" : "";
}

static inline nvrtcResult fake_log_size(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = strlen(fake_log_text()) + 1;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_log(nvrtcProgram program, char *log) {
  (void)program;
  strcpy(log, fake_log_text());
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_arch_count(int *count) {
  *count = 2;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_archs(int *archs) {
  archs[0] = 80;
  archs[1] = 90;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult fake_flow(nvrtcProgram program, int (*callback)(void *, void *), void *payload) {
  program->flow = callback;
  program->flow_payload = payload;
  return NVRTC_SUCCESS;
}

static inline const struct nvrtc_api *fake_nvrtc_api(void) {
  static const struct nvrtc_api api = {
      .nvrtcVersion = fake_version,
      .nvrtcCreateProgram = fake_create,
      .nvrtcDestroyProgram = fake_destroy,
      .nvrtcCompileProgram = fake_compile,
      .nvrtcAddNameExpression = fake_add_name,
      .nvrtcGetLoweredName = fake_lowered,
      .nvrtcGetLTOIRSize = fake_ltoir_size,
      .nvrtcGetLTOIR = fake_ltoir,
      .nvrtcGetCUBINSize = fake_cubin_size,
      .nvrtcGetCUBIN = fake_cubin,
      .nvrtcGetProgramLogSize = fake_log_size,
      .nvrtcGetProgramLog = fake_log,
      .nvrtcGetNumSupportedArchs = fake_arch_count,
      .nvrtcGetSupportedArchs = fake_archs,
      .nvrtcSetFlowCallback = fake_flow,
  };
  return &api;
}

#endif
