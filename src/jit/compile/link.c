/* The link step: what NVRTC gave and the request's parts go through nvJitLink to one cubin.
 *
 * With LTO-IR code generation happens here, so the options that govern it are handed on, and the kernels and variables
 * that the request names are told, so that the rest may go. The linker is asked for its figures; they come in a log of
 * their own. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/compile/compile_internal.h"
#include "jit/compile/link_symbols.h"
#include "jit/compile/symbols.h"
#include "jit/toolkit/linker.h"

/* NVRTC's options that govern code generation, and nvJitLink's names for them. */
static const struct {
  const char *name, *alias; /* without dashes */
  const char *link;         /* "%s" is the value */
} handed_on[] = {
    {"maxrregcount", "", "-maxrregcount=%s"},
    {"ftz", "", "-ftz=%s"},
    {"prec-div", "", "-prec-div=%s"},
    {"prec-sqrt", "", "-prec-sqrt=%s"},
    {"fmad", "", "-fma=%s"},
    {"ptxas-options", "Xptxas", "-Xptxas=%s"},
    {"split-compile", "", "-split-compile=%s"},
    {"generate-line-info", "lineinfo", "-lineinfo"},
    {"device-debug", "G", "-g"},
    {"use_fast_math", "", "-ftz=1\n-prec-div=0\n-prec-sqrt=0\n-fma=1"},
};

struct link {
  struct job *job;
  const struct linker_api *api;
  struct link_input *inputs;
  char (*names)[32]; /* names for inputs that have none */
  char **texts; /* copies of inputs that are PTX, because the linker wants a NUL behind them, which the caller's may
                   lack */
  size_t count;
  struct text options; /* one a line */
};

/* -- Options ------------------------------------------------------------------------------------------------------ */

static bool name_is(const char *name, size_t bytes, const char *spelling) {
  return *spelling && strlen(spelling) == bytes && !memcmp(name, spelling, bytes);
}

/* The value of an option; nvJitLink writes 1 and 0 for true and false. */
static const char *value_of(const char *option) {
  const char *const equals = strchr(option, '=');
  const char *const value = equals ? equals + 1 : "";
  return !strcmp(value, "true") ? "1" : !strcmp(value, "false") ? "0" : value;
}

static void put_handed_on(struct text *out, const char *format, const char *value) {
  const char *const place = strstr(format, "%s");
  text_append_bytes(out, format, place ? (size_t)(place - format) : strlen(format));
  if (place) text_append(out, value);
  text_append(out, "\n");
}

static void hand_on(struct text *out, const char *option) {
  const char *const name = option + (option[0] == '-') + (option[0] == '-' && option[1] == '-');
  const size_t bytes = strcspn(name, "=");
  for (size_t i = 0; i < sizeof handed_on / sizeof *handed_on; i++)
    if (name_is(name, bytes, handed_on[i].name) || name_is(name, bytes, handed_on[i].alias))
      put_handed_on(out, handed_on[i].link, value_of(option));
}

static void put_used(struct text *out, const char *option, const char *name, size_t bytes) {
  text_appendf(out, "-%s=", option);
  text_append_bytes(out, name, bytes);
  text_append(out, "\n");
}

/* Tell the linker which names to keep. Whether a lowered name is a kernel's or a variable's is not known, so each is
 * told as both. */
static void put_names(struct link *link) {
  const struct job *const job = link->job;
  struct text *const out = &link->options;
  struct symbols symbols;
  struct symbol symbol;
  const char *const entry = job->request->entry;
  text_append(out, "-optimize-unused-variables\n");
  if (!*entry && !job->names.bytes) return; /* the whole module was asked for */
  if (*entry && (!job->request->name_count || strcmp(entry, job->request->names[0]) != 0))
    put_used(out, "kernels-used", entry, strlen(entry));
  symbols_init(&symbols, job->names.data ? job->names.data : "", job->names.bytes);
  while (symbols_next(&symbols, &symbol)) {
    put_used(out, "kernels-used", symbol.linkage, symbol.linkage_bytes);
    put_used(out, "variables-used", symbol.linkage, symbol.linkage_bytes);
  }
}

static kjit_status make_options(struct link *link) {
  const struct job *const job = link->job;
  struct text *const out = &link->options;
  text_appendf(out, "-arch=%s\n-verbose\n-Xptxas=-v\n", job->request->target.name);
  for (size_t i = 0; i < job->request->option_count; i++)
    hand_on(out, job->request->options[i]);
  if (job->plan.lto) {
    text_append(out, "-lto\n");
    put_names(link);
  }
  return out->failed ? error_no_memory(job->error) : KJIT_OK;
}

/* Make an array of pointers to the option lines. NULL when out of memory. */
static const char **split_options(struct link *link, uint32_t *count) {
  size_t lines = 0;
  for (const char *at = link->options.data; (at = strchr(at, '\n')); at++)
    lines++;
  const char **const options = mem_alloc_array(link->job->mem, lines, sizeof *options);
  *count = 0;
  if (!options) return NULL;
  for (char *at = link->options.data, *end; (end = strchr(at, '\n')); at = end + 1) {
    *end = '\0';
    options[(*count)++] = at;
  }
  return options;
}

/* -- Inputs ------------------------------------------------------------------------------------------------------- */

static kjit_status take_inputs(struct link *link) {
  const struct job *const job = link->job;
  const struct jit_request *const request = job->request;
  const size_t most = request->part_count + 1;
  link->inputs = mem_alloc_array(job->mem, most, sizeof *link->inputs);
  link->names = mem_alloc_array(job->mem, most, sizeof *link->names);
  link->texts = mem_alloc_array(job->mem, most, sizeof *link->texts);
  if (!link->inputs || !link->names || !link->texts) return error_no_memory(job->error);
  if (job->plan.compiles)
    link->inputs[link->count++] =
        (struct link_input){request->label, job->plan.output, job->result->cubin, job->result->cubin_bytes};
  for (size_t i = 0; i < request->part_count; i++) {
    const struct jit_part *const part = &request->parts[i];
    (void)snprintf(link->names[i], sizeof *link->names, "parts[%zu]", i);
    struct link_input *const input = &link->inputs[link->count++];
    *input = (struct link_input){part->name ? part->name : link->names[i], part->kind, part->data, part->bytes};
    if (part->kind != KJIT_PART_PTX) continue;
    input->data = link->texts[i] = mem_duplicate(job->mem, part->data, part->bytes);
    input->bytes = part->bytes + 1;
    if (!input->data) return error_no_memory(job->error);
  }
  return KJIT_OK;
}

static int input_type(uint32_t kind) {
  return kind == KJIT_PART_PTX      ? LINKER_PTX
         : kind == KJIT_PART_LTOIR  ? LINKER_LTOIR
         : kind == KJIT_PART_FATBIN ? LINKER_FATBIN
                                    : LINKER_CUBIN;
}

/* -- The linker --------------------------------------------------------------------------------------------------- */

static char *read_log(const struct link *link, void *handle, int (*size)(void *, size_t *),
                      int (*get)(void *, char *)) {
  size_t bytes = 0;
  if (size(handle, &bytes) || !bytes || bytes > COMPILE_LOG_LIMIT) return NULL;
  char *const log = mem_alloc(link->job->mem, bytes + 1);
  if (!log || !get(handle, log)) return log;
  mem_free(link->job->mem, log);
  return NULL;
}

/* Append the linker's messages to the compiler's log. */
static void append_log(struct job *job, const char *more) {
  struct text log;
  text_init(&log, job->mem, 2 * COMPILE_LOG_LIMIT);
  if (job->result->log) text_append(&log, job->result->log);
  text_append(&log, more);
  if (!log.failed) {
    mem_free(job->mem, job->result->log);
    job->result->log = text_take(&log);
  }
  text_finish(&log);
}

static kjit_status fail(struct link *link, void *handle, int result, const char *what) {
  struct job *const job = link->job;
  char *const log = handle ? read_log(link, handle, link->api->error_log_size, link->api->error_log) : NULL;
  const char *line = "";
  int bytes = 0;
  if (log) compile_error_line(log, &line, &bytes);
  const kjit_status status =
      error_set(job->error, KJIT_ERR_COMPILE, "link: %s for %s: %s (result %d)%s%.*s", job->request->label,
                job->request->target.name, what, result, bytes ? ": " : "", bytes, line);
  if (log) append_log(job, log);
  mem_free(job->mem, log);
  return status;
}

static kjit_status take_cubin(struct link *link, void *handle) {
  struct job *const job = link->job;
  size_t bytes = 0;
  int result = link->api->cubin_size(handle, &bytes);
  if (result || !bytes || bytes > COMPILE_CODE_LIMIT) return fail(link, handle, result, "nvJitLink gives no cubin");
  void *const cubin = mem_alloc(job->mem, bytes);
  if (!cubin) return error_no_memory(job->error);
  mem_free(job->mem, job->result->cubin);
  job->result->cubin = cubin;
  job->result->cubin_bytes = bytes;
  result = link->api->cubin(handle, cubin);
  return result ? fail(link, handle, result, "nvJitLink gives no cubin") : KJIT_OK;
}

static kjit_status add_inputs(struct link *link, void *handle) {
  for (size_t i = 0; i < link->count; i++) {
    const struct link_input *const input = &link->inputs[i];
    const int result = link->api->add_data(handle, input_type(input->kind), input->data, input->bytes, input->name);
    if (result) return fail(link, handle, result, input->name);
  }
  return KJIT_OK;
}

static kjit_status run(struct link *link) {
  struct job *const job = link->job;
  uint32_t count;
  void *handle = NULL;
  const char **const options = split_options(link, &count);
  if (!options) return error_no_memory(job->error);
  const int created = link->api->create(&handle, count, options);
  mem_free(job->mem, options);
  if (created) return fail(link, NULL, created, "nvJitLink does not take the options");
  kjit_status status = add_inputs(link, handle);
  if (status == KJIT_OK) {
    const int result = link->api->complete(handle);
    status = result ? fail(link, handle, result, "nvJitLink refuses it") : take_cubin(link, handle);
  }
  if (status == KJIT_OK) job->link_log = read_log(link, handle, link->api->info_log_size, link->api->info_log);
  (void)link->api->destroy(&handle);
  return status;
}

kjit_status link_run(struct job *job) {
  struct link link = {.job = job};
  text_init(&link.options, job->mem, (size_t)64 << 20);
  kjit_status status = nvrtc_open_linker(job->nvrtc, &link.api, job->error);
  if (status == KJIT_OK) status = take_inputs(&link);
  if (status == KJIT_OK) status = link_symbols_check(job->mem, link.inputs, link.count, job->error);
  if (status == KJIT_OK) status = make_options(&link);
  if (status == KJIT_OK) status = run(&link);
  text_finish(&link.options);
  for (size_t i = 0; link.texts && i < job->request->part_count; i++)
    mem_free(job->mem, link.texts[i]);
  mem_free(job->mem, link.texts);
  mem_free(job->mem, link.names);
  mem_free(job->mem, link.inputs);
  return status;
}
