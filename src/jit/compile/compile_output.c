/* What came out of a compile: which kernels the image has, with which figures, and whether the one that was asked for
 * is there; and what of the image goes before that, because nothing uses it. Any thread; everything belongs to one job.
 */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/compile/compile_inspect.h"
#include "jit/compile/compile_internal.h"
#include "jit/compile/ptxas_log.h"
#include "jit/compile/symbols.h"
#include "jit/cubin/cubin.h"
#include "jit/cubin/unused.h"

/* A kernel's figures. The linker's are those of the finished code; where it says nothing, the compiler's are taken. */
static void read_figures(const struct job *job, const char *kernel, struct kernel_figures *out) {
  struct compile_result *const result = job->result;
  struct ptxas_figures figures;
  struct cubin_kernel said;
  figures = (struct ptxas_figures){0};
  if (result->log) ptxas_log_find(result->log, kernel, &figures);
  if (job->link_log) ptxas_log_update(job->link_log, kernel, &figures);
  *out = (struct kernel_figures){.registers = figures.registers,
                                 .spill_bytes = figures.spill_bytes,
                                 .local_bytes = figures.local_bytes,
                                 .shared_bytes = figures.shared_bytes};
  if (cubin_find_kernel(result->cubin, result->cubin_bytes, kernel, &said)) out->max_threads = said.max_threads;
}

static void take_entry(struct compile_result *result, const struct kernel_figures *figures) {
  result->registers = figures->registers;
  result->spill_bytes = figures->spill_bytes;
  result->local_bytes = figures->local_bytes;
  result->shared_bytes = figures->shared_bytes;
  result->max_threads = figures->max_threads;
}

/* The name that the request's entry has in the cubin; "" when the request names none. */
static void find_entry(const struct job *job, const char **entry, size_t *bytes) {
  struct symbols symbols;
  struct symbol symbol;
  const size_t asked = strlen(job->request->entry);
  *entry = job->request->entry;
  *bytes = asked;
  symbols_init(&symbols, job->names.data ? job->names.data : "", job->names.bytes);
  while (symbols_next(&symbols, &symbol)) {
    if (symbol.expression_bytes != asked || memcmp(symbol.expression, job->request->entry, asked) != 0) continue;
    *entry = symbol.linkage;
    *bytes = symbol.linkage_bytes;
    return;
  }
}

static kjit_status refuse_entry(const struct job *job) {
  struct text list;
  text_init(&list, job->mem, 4096);
  cubin_list_kernels(job->result->cubin, job->result->cubin_bytes, &list);
  const kjit_status status =
      error_set(job->error, KJIT_ERR_COMPILE,
                "%s: has no kernel named \"%s\"; declare it extern \"C\" __global__. Kernels in it: %s",
                job->request->label, job->request->entry, list.failed ? "(many)" : list.data);
  text_finish(&list);
  return status;
}

static void drop_cubin(struct job *job) {
  mem_free(job->mem, job->result->cubin);
  job->result->cubin = NULL;
  job->result->cubin_bytes = 0;
}

/* List all kernels in the order of the image, and see whether the entry is among them. */
static kjit_status list_kernels(struct job *job, const char *entry, size_t entry_bytes, bool *found) {
  struct compile_result *const result = job->result;
  struct text text;
  size_t at = 0;
  text_init(&text, job->mem, SYMBOLS_MAX_BYTES);
  *found = 0;
  for (const char *name; (name = cubin_next_kernel(result->cubin, result->cubin_bytes, &at));) {
    struct kernel_figures figures;
    const size_t bytes = strlen(name);
    const bool is_entry = bytes == entry_bytes && !memcmp(name, entry, bytes);
    read_figures(job, name, &figures);
    if (is_entry || (!entry_bytes && !text.bytes)) take_entry(result, &figures);
    symbols_put_kernel(&text, name, bytes, &figures);
    *found |= is_entry;
  }
  if (job->names.data) text_append_bytes(&text, job->names.data, job->names.bytes);
  result->symbols = text_take(&text);
  text_finish(&text);
  return result->symbols ? KJIT_OK : error_no_memory(job->error);
}

kjit_status compile_read_output(struct job *job) {
  struct compile_result *const result = job->result;
  kjit_status status = KJIT_OK;
  if (!(job->request->flags & KJIT_BUILD_OBJECT) && cubin_is_readable(result->cubin, result->cubin_bytes)) {
    const char *entry;
    size_t bytes;
    bool found;
    find_entry(job, &entry, &bytes);
    status = list_kernels(job, entry, bytes, &found);
    /* Report a missing entry here, because the driver's message would not say which kernels there are. */
    if (status == KJIT_OK && bytes && !found) {
      status = refuse_entry(job);
      drop_cubin(job);
    }
  } else if (result->log) {
    struct ptxas_figures figures;
    ptxas_log_find(result->log, job->request->entry, &figures);
    result->registers = figures.registers;
    result->spill_bytes = figures.spill_bytes;
    result->local_bytes = figures.local_bytes;
    result->shared_bytes = figures.shared_bytes;
  }
  if (result->log) ptxas_log_strip(result->log);
  return status;
}

/* The names that the request asks for stay, though nothing in the module may use them. */
static const char *next_kept(void *user, size_t *bytes) {
  struct symbol symbol;
  if (!symbols_next(user, &symbol)) return NULL;
  *bytes = symbol.linkage_bytes;
  return symbol.linkage;
}

void compile_drop_unused(struct job *job) {
  struct compile_result *const result = job->result;
  struct symbols kept;
  size_t bytes;
  if (job->plan.links || job->request->flags & JIT_REQUEST_OUTPUT_FLAGS ||
      !unused_is_likely(result->cubin, result->cubin_bytes))
    return;
  char *const ptx = compile_read_ptx(job, &bytes);
  symbols_init(&kept, job->names.data ? job->names.data : "", job->names.bytes);
  if (ptx)
    result->cubin_bytes = unused_drop(job->mem, result->cubin, result->cubin_bytes, ptx, bytes, next_kept, &kept);
  mem_free(job->mem, ptx);
}
