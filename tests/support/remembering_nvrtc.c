/* An NVRTC that remembers: a library with NVRTC's functions that hands each compile to the real NVRTC once, and keeps
 * what came out in a folder, so that tests which need a kernel, not a compiler, share the compiles of a tools/check
 * run.
 *
 *   TEST_REAL_NVRTC           the real library
 *   TEST_REAL_NVRTC_BUILTINS  its builtins
 *   TEST_REMEMBERED_COMPILES  the folder, which exists
 *
 * 1. nvrtcCompileProgram() digests all that a result follows from: the real library's path, size and time, the source,
 *    the headers, the options, the name expressions.
 * 2. A file of that name in the folder is the result: the real library is not even opened.
 * 3. Otherwise the real library compiles. A result without an error goes to the folder under a name of its own and is
 *    renamed, so that other processes never see half of it.
 * A compile that reads or writes other files (-I, precompiled headers, times) is never remembered, and neither is one
 * that fails. A program belongs to one thread at a time, as NVRTC has it; different programs may be used at once. */
#include <dlfcn.h>
#include <nvrtc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"

/* The real library's functions. The last one is missing before 12.8. */
struct real {
  nvrtcResult (*version)(int *, int *);
  nvrtcResult (*arch_count)(int *);
  nvrtcResult (*archs)(int *);
  nvrtcResult (*create)(nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *);
  nvrtcResult (*destroy)(nvrtcProgram *);
  nvrtcResult (*compile)(nvrtcProgram, int, const char *const *);
  nvrtcResult (*add_name)(nvrtcProgram, const char *);
  nvrtcResult (*lowered)(nvrtcProgram, const char *, const char **);
  nvrtcResult (*log_size)(nvrtcProgram, size_t *), (*log)(nvrtcProgram, char *);
  nvrtcResult (*cubin_size)(nvrtcProgram, size_t *), (*cubin)(nvrtcProgram, char *);
  nvrtcResult (*ltoir_size)(nvrtcProgram, size_t *), (*ltoir)(nvrtcProgram, char *);
  nvrtcResult (*ptx_size)(nvrtcProgram, size_t *), (*ptx)(nvrtcProgram, char *);
  const char *(*error_string)(nvrtcResult);
  nvrtcResult (*set_flow)(nvrtcProgram, int (*)(void *, void *), void *);
};

/* What a compile leaves; a text counts its end. */
enum part { LOG, CUBIN, LTOIR, PTX, NAMES, PARTS };

struct blob {
  char *data;
  size_t bytes;
};

struct _nvrtcProgram {
  struct digest_state input; /* of the source, its name and the headers; then of the name expressions */
  struct blob names;         /* the expressions, each with its end */
  nvrtcProgram real;         /* NULL: nothing was compiled */
  char *source, *name;
  char **headers, **header_names;
  int header_count;
  int (*flow)(void *, void *);
  void *flow_payload;
  struct blob parts[PARTS];
};

static void *must(void *memory) {
  if (!memory) abort();
  return memory;
}

static void append(struct blob *blob, const void *data, size_t bytes) {
  blob->data = must(realloc(blob->data, blob->bytes + bytes + 1));
  memcpy(blob->data + blob->bytes, data, bytes);
  blob->bytes += bytes;
}

static void append_text(struct blob *blob, const char *text) {
  append(blob, text, strlen(text) + 1);
}

static void add_text(struct digest_state *state, const char *text) {
  digest_add(state, text ? text : "", (text ? strlen(text) : 0) + 1);
}

static struct real real_nvrtc;

static void open_once(void) {
  static const char *const names[] = {"nvrtcVersion",           "nvrtcGetNumSupportedArchs",
                                      "nvrtcGetSupportedArchs", "nvrtcCreateProgram",
                                      "nvrtcDestroyProgram",    "nvrtcCompileProgram",
                                      "nvrtcAddNameExpression", "nvrtcGetLoweredName",
                                      "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                      "nvrtcGetCUBINSize",      "nvrtcGetCUBIN",
                                      "nvrtcGetLTOIRSize",      "nvrtcGetLTOIR",
                                      "nvrtcGetPTXSize",        "nvrtcGetPTX",
                                      "nvrtcGetErrorString",    "nvrtcSetFlowCallback"};
  _Static_assert(sizeof real_nvrtc == sizeof names / sizeof *names * sizeof(void *), "a name for each function");
  const char *const path = getenv("TEST_REAL_NVRTC"), *const builtins = getenv("TEST_REAL_NVRTC_BUILTINS");
  /* As kjit does: it stays open, otherwise a compile that fails closes it, which ThreadSanitizer's list of libraries to
   * leave alone does not allow. */
  if (builtins) (void)dlopen(builtins, RTLD_NOW | RTLD_LOCAL);
  void *const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "remembering_nvrtc: TEST_REAL_NVRTC: %s\n", path ? dlerror() : "not set");
    abort();
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *const symbol = dlsym(library, names[i]);
    memcpy((char *)&real_nvrtc + i * sizeof symbol, &symbol, sizeof symbol); /* POSIX says that it fits, C does not */
  }
}

static const struct real *open_real(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, open_once);
  return &real_nvrtc;
}

/* --- The folder ------------------------------------------------------------------------------------------------- */

static bool reads_no_files(int option_count, const char *const *options) {
  static const char *const reading[] = {
      "-I",    "--include", "-include", "--pre-include", "--create-pch",       "--use-pch",
      "--pch", "-pch",      "--time",   "-time",         "--device-time-trace"};
  for (int i = 0; i < option_count; i++)
    for (size_t k = 0; k < sizeof reading / sizeof *reading; k++)
      if (!strncmp(options[i], reading[k], strlen(reading[k]))) return false;
  return getenv("TEST_REMEMBERED_COMPILES") != NULL;
}

static void name_result(char *path, size_t room, nvrtcProgram program, int option_count, const char *const *options) {
  struct digest_state state = program->input;
  struct digest digest;
  struct stat file = {0};
  char stamp[96], hex[DIGEST_HEX_BYTES];
  const char *const library = getenv("TEST_REAL_NVRTC");
  if (library) (void)stat(library, &file);
  (void)snprintf(stamp, sizeof stamp, "%lld %lld %ld", (long long)file.st_size, (long long)file.st_mtim.tv_sec,
                 file.st_mtim.tv_nsec);
  add_text(&state, library);
  add_text(&state, stamp);
  for (int i = 0; i < option_count; i++)
    add_text(&state, options[i]);
  digest_end(&state, &digest);
  digest_to_hex(&digest, hex);
  (void)snprintf(path, room, "%s/%s", getenv("TEST_REMEMBERED_COMPILES"), hex);
}

static bool read_blob(FILE *file, struct blob *blob) {
  uint64_t bytes;
  if (fread(&bytes, sizeof bytes, 1, file) != 1) return false;
  *blob = (struct blob){must(malloc(bytes + 1)), bytes};
  return fread(blob->data, 1, bytes, file) == bytes;
}

static bool recall(nvrtcProgram program, const char *path) {
  FILE *const file = fopen(path, "rb");
  bool whole = file != NULL;
  for (int i = 0; whole && i < PARTS; i++)
    whole = read_blob(file, &program->parts[i]);
  if (file) fclose(file);
  return whole;
}

static void remember(nvrtcProgram program, const char *path) {
  char own[4096];
  (void)snprintf(own, sizeof own, "%s.%ld.%p", path, (long)getpid(), (void *)program);
  FILE *const file = fopen(own, "wb");
  if (!file) return; /* a full disk costs compiles, not tests */
  bool whole = true;
  for (int i = 0; i < PARTS; i++) {
    const struct blob *const part = &program->parts[i];
    const uint64_t bytes = part->bytes;
    whole = whole && fwrite(&bytes, sizeof bytes, 1, file) == 1;
    if (bytes > 0) whole = whole && fwrite(part->data, 1, part->bytes, file) == bytes; /* an empty part has no memory */
  }
  if (fclose(file) == 0 && whole)
    (void)rename(own, path);
  else
    (void)unlink(own);
}

/* --- The real compile -------------------------------------------------------------------------------------------- */

static void take(struct blob *part, nvrtcProgram program, nvrtcResult (*size)(nvrtcProgram, size_t *),
                 nvrtcResult (*get)(nvrtcProgram, char *)) {
  size_t bytes = 0;
  if (!size || !get || size(program, &bytes) != NVRTC_SUCCESS) return;
  part->data = must(malloc(bytes + 1));
  if (get(program, part->data) == NVRTC_SUCCESS) part->bytes = bytes;
}

static void take_names(nvrtcProgram program) {
  for (const char *at = program->names.data, *end = at + program->names.bytes; at < end; at += strlen(at) + 1) {
    const char *lowered = NULL;
    if (real_nvrtc.lowered(program->real, at, &lowered) != NVRTC_SUCCESS) lowered = "";
    append_text(&program->parts[NAMES], lowered);
  }
}

static nvrtcResult compile_for_real(nvrtcProgram program, int option_count, const char *const *options) {
  const struct real *const real = open_real();
  nvrtcResult result = real->create(&program->real, program->source, program->name, program->header_count,
                                    (const char *const *)program->headers, (const char *const *)program->header_names);
  for (const char *at = program->names.data, *end = at + program->names.bytes; result == NVRTC_SUCCESS && at < end;
       at += strlen(at) + 1)
    result = real->add_name(program->real, at);
  if (result == NVRTC_SUCCESS && program->flow && real->set_flow)
    (void)real->set_flow(program->real, program->flow, program->flow_payload);
  if (result == NVRTC_SUCCESS) result = real->compile(program->real, option_count, options);
  if (!program->real) return result;
  take(&program->parts[LOG], program->real, real->log_size, real->log);
  if (result != NVRTC_SUCCESS) return result;
  take(&program->parts[CUBIN], program->real, real->cubin_size, real->cubin);
  take(&program->parts[LTOIR], program->real, real->ltoir_size, real->ltoir);
  take(&program->parts[PTX], program->real, real->ptx_size, real->ptx);
  take_names(program);
  return result;
}

/* --- NVRTC's functions; <nvrtc.h> declares them ------------------------------------------------------------------ */

nvrtcResult nvrtcVersion(int *major, int *minor) {
  return open_real()->version(major, minor);
}
nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  return open_real()->arch_count(count);
}
nvrtcResult nvrtcGetSupportedArchs(int *archs) {
  return open_real()->archs(archs);
}

const char *nvrtcGetErrorString(nvrtcResult result) {
  return open_real()->error_string(result);
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *header_names) {
  nvrtcProgram made = must(aligned_alloc(_Alignof(struct _nvrtcProgram), sizeof *made));
  memset(made, 0, sizeof *made);
  made->source = must(strdup(source));
  made->name = name ? must(strdup(name)) : NULL;
  made->header_count = header_count;
  made->headers = must(calloc((size_t)header_count + 1, sizeof *made->headers));
  made->header_names = must(calloc((size_t)header_count + 1, sizeof *made->header_names));
  digest_begin(&made->input);
  digest_add(&made->input, &header_count, sizeof header_count);
  add_text(&made->input, source);
  add_text(&made->input, name);
  for (int i = 0; i < header_count; i++) {
    made->headers[i] = must(strdup(headers[i]));
    made->header_names[i] = must(strdup(header_names[i]));
    add_text(&made->input, headers[i]);
    add_text(&made->input, header_names[i]);
  }
  *program = made;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  nvrtcProgram gone = *program;
  if (gone->real) (void)real_nvrtc.destroy(&gone->real);
  for (int i = 0; i < gone->header_count; i++) {
    free(gone->headers[i]);
    free(gone->header_names[i]);
  }
  for (int i = 0; i < PARTS; i++)
    free(gone->parts[i].data);
  free(gone->headers);
  free(gone->header_names);
  free(gone->source);
  free(gone->name);
  free(gone->names.data);
  free(gone);
  *program = NULL;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *expression) {
  append_text(&program->names, expression);
  add_text(&program->input, expression);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcSetFlowCallback(nvrtcProgram program, int (*flow)(void *, void *), void *payload) {
  program->flow = flow;
  program->flow_payload = payload;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options) {
  char path[3072];
  const bool remembers = reads_no_files(option_count, options);
  if (remembers) name_result(path, sizeof path, program, option_count, options);
  if (remembers && recall(program, path)) return NVRTC_SUCCESS;
  const nvrtcResult result = compile_for_real(program, option_count, options);
  if (remembers && result == NVRTC_SUCCESS) remember(program, path);
  return result;
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *expression, const char **lowered) {
  const char *result = program->parts[NAMES].data;
  for (const char *at = program->names.data, *end = at + program->names.bytes; result && at < end;
       at += strlen(at) + 1, result += strlen(result) + 1) {
    if (strcmp(at, expression) != 0) continue;
    *lowered = result;
    return *result ? NVRTC_SUCCESS : NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  }
  return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

static nvrtcResult size_of(nvrtcProgram program, enum part part, size_t *bytes) {
  *bytes = program->parts[part].bytes;
  return NVRTC_SUCCESS;
}
static nvrtcResult copy(nvrtcProgram program, enum part part, char *to) {
  if (program->parts[part].bytes) memcpy(to, program->parts[part].data, program->parts[part].bytes);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
  return size_of(program, LOG, bytes);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
  return copy(program, LOG, log);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
  return size_of(program, CUBIN, bytes);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
  return copy(program, CUBIN, cubin);
}
nvrtcResult nvrtcGetLTOIRSize(nvrtcProgram program, size_t *bytes) {
  return size_of(program, LTOIR, bytes);
}
nvrtcResult nvrtcGetLTOIR(nvrtcProgram program, char *ltoir) {
  return copy(program, LTOIR, ltoir);
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes) {
  return size_of(program, PTX, bytes);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ptx) {
  return copy(program, PTX, ptx);
}
