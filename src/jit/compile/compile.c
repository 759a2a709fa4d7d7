/* One request through the tools. What its plan says is done in turn:
 *
 * 1. The target is compared with what this NVRTC compiles for.
 * 2. A program is made of prologue and main file, with every header in memory, and is told the name expressions.
 * 3. It is compiled; a flow callback asks the caller now and then whether to stop (NVRTC 12.8).
 * 4. The lowered names and the code are read.
 * 5. nvJitLink links it with the request's parts (link.c).
 * 6. The finished code's kernels are listed, with their figures from the logs, so that a wrong name is said in words
 *    (compile_output.c).
 *
 * Nothing is shared between jobs but the opened libraries, so any number of threads may be in here; NVRTC itself
 * compiles the front end of one program at a time. */
#include "jit/compile/compile.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "base/text.h"
#include "jit/compile/compile_inspect.h"
#include "jit/compile/compile_internal.h"
#include "jit/compile/log_paths.h"
#include "jit/compile/preamble.h"
#include "jit/compile/ptxas_log.h"
#include "jit/compile/symbols.h"
#include "jit/request/compile_options.h"

/* Longest program text: a source may have 64 MiB, and the defines in front of it 18 MiB. */
#define SOURCE_LIMIT ((size_t)96 << 20)

/* CUDA has named some thirty architectures in its whole history. */
#define ARCH_LIMIT 256

/* What NVRTC may use to hold a precompiled header: twice what the largest that was met (CuTe's, 298 MB) needs. The
 * memory is reserved, and taken only as it is used. */
#define PCH_HEAP_BYTES ((size_t)768 << 20)

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool version_at_least(const struct job *job, int major, int minor) {
  return job->major > major || (job->major == major && job->minor >= minor);
}

static const char *result_name(const struct job *job, nvrtcResult result) {
  return job->api->nvrtcGetErrorString ? job->api->nvrtcGetErrorString(result) : "an error";
}

/* The error for a failure that is not the source's fault. */
static kjit_status nvrtc_failure(const struct job *job, nvrtcResult result, const char *what) {
  const kjit_status status = result == NVRTC_ERROR_OUT_OF_MEMORY ? KJIT_ERR_NO_MEMORY : KJIT_ERR_INTERNAL;
  return error_set_cause(job->error, status, KJIT_CAUSE_NVRTC, result, "%s for %s: NVRTC %s: %s", job->request->entry,
                         job->request->target.name, what, result_name(job, result));
}

static kjit_status refuse_target(const struct job *job, const int *archs, int count) {
  struct text list;
  text_init(&list, job->mem, 4096);
  for (int i = 0; i < count; i++)
    text_appendf(&list, "%ssm_%d", i ? ", " : "", archs[i]);
  const kjit_status status = error_set(
      job->error, KJIT_ERR_UNSUPPORTED, "arch: NVRTC %d.%d does not compile for %s%s%s", job->major, job->minor,
      job->request->target.name, count ? ", but for " : "", list.data && !list.failed ? list.data : "");
  text_finish(&list);
  return status;
}

/* 'a' came with sm_90, 'f' with sm_100 and CUDA 12.9. */
static bool has_suffix(const struct job *job, const struct target *target) {
  if (target->suffix == 'a') return target->capability >= 90;
  return !target->suffix || (target->capability >= 100 && version_at_least(job, 12, 9));
}

static kjit_status check_target(const struct job *job) {
  const struct target *target = &job->request->target;
  int archs[ARCH_LIMIT], count = 0;
  nvrtcResult result = job->api->nvrtcGetNumSupportedArchs(&count);
  if (result == NVRTC_SUCCESS && (count < 0 || count > ARCH_LIMIT)) result = NVRTC_ERROR_INTERNAL_ERROR;
  if (result == NVRTC_SUCCESS) result = job->api->nvrtcGetSupportedArchs(archs);
  if (result != NVRTC_SUCCESS) return nvrtc_failure(job, result, "cannot say what it compiles for");
  for (int i = 0; i < count; i++) {
    if (archs[i] == (int)target->capability && has_suffix(job, target)) return KJIT_OK;
  }
  return refuse_target(job, archs, count);
}

static bool should_stop(struct stop_state *state) {
  if (!state->stop) return false;
  if (!atomic_load(&state->stopped) && state->stop(state->user)) atomic_store(&state->stopped, 1);
  return atomic_load(&state->stopped);
}

static int flow_callback(void *payload, void *reserved) {
  (void)reserved;
  return should_stop(payload);
}

static kjit_status create_program(struct job *job) {
  const struct source_set *sources = job->request->sources;
  const size_t headers = sources->count - 1;
  struct text source;
  text_init(&source, job->mem, SOURCE_LIMIT);
  text_append(&source, job->pch ? job->pch->source : job->request->prologue);
  const bool lines = !job->pch && compile_wants_lines(job->request);
  if (lines && job->request->main_path && *job->request->main_path)
    compile_append_line(&source, job->request->main_path, sources->files[0].name);
  if (!job->pch) text_append(&source, sources->files[0].text);
  const char **texts = mem_alloc_array(job->mem, headers, sizeof *texts);
  const char **names = mem_alloc_array(job->mem, headers, sizeof *names);
  kjit_status status = KJIT_OK;
  if (source.failed || !texts || !names) {
    status = error_no_memory(job->error);
    goto done;
  }
  for (size_t i = 0; i < headers; i++) {
    texts[i] = sources->files[i + 1].text;
    names[i] = sources->files[i + 1].name;
  }
  if (lines && !compile_line_texts(job->mem, sources->files + 1, headers, texts)) {
    status = error_no_memory(job->error);
    goto done;
  }
  const nvrtcResult result =
      job->api->nvrtcCreateProgram(&job->program, source.data, sources->files[0].name, (int)headers, texts, names);
  if (result != NVRTC_SUCCESS) status = nvrtc_failure(job, result, "does not take the source");
  for (size_t i = 0; lines && i < headers; i++)
    mem_free(job->mem, (char *)(uintptr_t)texts[i]);
done:
  mem_free(job->mem, names);
  mem_free(job->mem, texts);
  text_finish(&source);
  return status;
}

static kjit_status add_names(struct job *job) {
  for (size_t i = 0; i < job->request->name_count; i++) {
    const nvrtcResult result = job->api->nvrtcAddNameExpression(job->program, job->request->names[i]);
    if (result != NVRTC_SUCCESS) return nvrtc_failure(job, result, "does not take a name expression");
  }
  return KJIT_OK;
}

static kjit_status compile_program(struct job *job, nvrtcResult *result) {
  const struct jit_request *request = job->request;
  char arch[sizeof "--gpu-architecture=" + sizeof request->target.name] = "--gpu-architecture=";
  char pch[PCH_OPTION_BYTES], time[COMPILE_TIME_OPTION_BYTES];
  const char *const *standing = NULL;
  size_t count = compile_standing_options(&standing);
  const char **options = mem_alloc_array(job->mem, count + 4 + request->option_count, sizeof *options);
  if (!options) return error_no_memory(job->error);
  const int times = compile_time_begin(job, time);
  memcpy(options, standing, count * sizeof *options);
  /* Of two standards the last wins, with a warning in each log: the library's own gives way. */
  for (size_t i = 0; i < request->option_count; i++)
    if (!strncmp(request->options[i], "--std=", 6) && options[0] == standing[0])
      memmove(options, options + 1, --count * sizeof *options);
  options[count++] = strcat(arch, request->target.name);
  /* NVRTC's own cache is the driver's, in the user's home: ours answers before it, and a build is to be a build. */
  if (version_at_least(job, 12, 9)) options[count++] = "--no-cache";
  /* An NVRTC that does not know --minimal reads declarations that the source does without: the code is the same. */
  for (size_t i = 0; i < request->option_count; i++)
    if (strcmp(request->options[i], "--minimal") != 0 || version_at_least(job, 12, 4))
      options[count++] = request->options[i];
  if (job->plan.unit_option) options[count++] = job->plan.unit_option;
  if (job->pch) {
    (void)snprintf(pch, sizeof pch, "--%s-pch=%s", job->pch->create ? "create" : "use", job->pch->file);
    options[count++] = pch;
  }
  if (times >= 0) options[count++] = time;
  if (job->stop.stop && job->api->nvrtcSetFlowCallback)
    (void)job->api->nvrtcSetFlowCallback(job->program, flow_callback, &job->stop);
  *result = job->api->nvrtcCompileProgram(job->program, (int)count, options);
  compile_time_end(times, job);
  mem_free(job->mem, options);
  return KJIT_OK;
}

static kjit_status read_log(struct job *job) {
  size_t bytes = 0;
  nvrtcResult result = job->api->nvrtcGetProgramLogSize(job->program, &bytes);
  if (result == NVRTC_SUCCESS && bytes > COMPILE_LOG_LIMIT) {
    static const char excuse[] = "(the compiler's log was left out: more than 16 MiB)\n";
    job->result->log = mem_strdup(job->mem, excuse);
    return job->result->log ? KJIT_OK : error_no_memory(job->error);
  }
  char *log = mem_alloc(job->mem, bytes + 1);
  if (!log) return error_no_memory(job->error);
  if (result == NVRTC_SUCCESS && bytes) result = job->api->nvrtcGetProgramLog(job->program, log);
  job->result->log = log;
  log[bytes] = '\0';
  return result == NVRTC_SUCCESS ? KJIT_OK : nvrtc_failure(job, result, "does not give its log");
}

/* NVRTC's own words about a precompiled header. */
static void read_pch_note(struct job *job) {
  struct compile_pch *const pch = job->pch;
  if (!pch) return;
  pch->done = preamble_take_note(job->result->log);
  if (!pch->create) return;
  /* A preamble must compile without any message, because whoever uses it precompiled would not see the message. */
  ptxas_log_strip(job->result->log);
  pch->done = pch->done && !*job->result->log && job->api->nvrtcGetPCHCreateStatus(job->program) == NVRTC_SUCCESS;
}

/* What went wrong in the compile itself, by its result and, unless it was stopped, its log. */
static kjit_status compile_failure(const struct job *job, nvrtcResult result) {
  if (result == NVRTC_ERROR_CANCELLED) {
    return error_set_cause(job->error, KJIT_ERR_CANCELLED, KJIT_CAUSE_NVRTC, result,
                           "%s for %s: the compile was stopped", job->request->entry, job->request->target.name);
  }
  if (result == NVRTC_ERROR_OUT_OF_MEMORY) return nvrtc_failure(job, result, "does not compile it");
  const char *line;
  int bytes;
  kjit_status status = KJIT_ERR_COMPILE;
  compile_error_line(job->result->log, &line, &bytes);
  if (result == NVRTC_ERROR_INVALID_OPTION) status = KJIT_ERR_INVALID_ARG;
  if (result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE) status = KJIT_ERR_NO_NVRTC;
  return error_set_cause(job->error, status, KJIT_CAUSE_NVRTC, result, "%.*s%s%s", bytes, line,
                         bytes ? "" : "NVRTC: ", bytes ? "" : result_name(job, result));
}

/* The compiler knows the lowered names until its program is destroyed. */
static kjit_status read_names(struct job *job) {
  for (size_t i = 0; i < job->request->name_count; i++) {
    const char *lowered = NULL;
    const nvrtcResult result = job->api->nvrtcGetLoweredName(job->program, job->request->names[i], &lowered);
    if (result != NVRTC_SUCCESS || !lowered) return nvrtc_failure(job, result, "does not lower a name expression");
    symbols_put_name(&job->names, lowered, job->request->names[i]);
  }
  return job->names.failed ? error_no_memory(job->error) : KJIT_OK;
}

static kjit_status read_code(struct job *job) {
  const bool lto = job->plan.output == KJIT_PART_LTOIR;
  struct compile_result *const out = job->result;
  size_t bytes = 0;
  nvrtcResult result =
      lto ? job->api->nvrtcGetLTOIRSize(job->program, &bytes) : job->api->nvrtcGetCUBINSize(job->program, &bytes);
  if (result != NVRTC_SUCCESS) return nvrtc_failure(job, result, "does not give the cubin's size");
  if (bytes == 0 || bytes > COMPILE_CODE_LIMIT) {
    return error_set(job->error, KJIT_ERR_COMPILE, "%s for %s: %s", job->request->entry, job->request->target.name,
                     bytes ? "the machine code is beyond 256 MiB"
                           : "NVRTC gave no machine code: an option asks for something else");
  }
  out->cubin = mem_alloc(job->mem, bytes);
  if (!out->cubin) return error_no_memory(job->error);
  out->cubin_bytes = bytes;
  result = lto ? job->api->nvrtcGetLTOIR(job->program, out->cubin) : job->api->nvrtcGetCUBIN(job->program, out->cubin);
  return result == NVRTC_SUCCESS ? KJIT_OK : nvrtc_failure(job, result, "does not give the cubin");
}

/* The source to code that is finished or to be linked. */
static kjit_status compile_unit(struct job *job) {
  const bool preamble_only = job->pch && job->pch->create; /* the names are declared behind it */
  nvrtcResult result = NVRTC_SUCCESS;
  kjit_status status = create_program(job);
  if (status == KJIT_OK && !preamble_only) status = add_names(job);
  if (status == KJIT_OK) status = compile_program(job, &result);
  if (status == KJIT_OK) status = read_log(job);
  if (status == KJIT_OK) read_pch_note(job);
  if (status == KJIT_OK) log_paths_show(&job->result->log, job->request->sources, job->mem);
  if (status == KJIT_OK) compile_log_rewrite(job->result->log);
  if (status == KJIT_OK && result != NVRTC_SUCCESS) {
    ptxas_log_strip(job->result->log);
    status = compile_failure(job, result);
  }
  if (status == KJIT_OK && !preamble_only) status = read_names(job);
  if (status == KJIT_OK && !preamble_only) status = read_code(job);
  if (status == KJIT_OK && !preamble_only) compile_keep_ptx(job);
  if (status == KJIT_OK && !preamble_only) compile_drop_unused(job);
  if (job->program) (void)job->api->nvrtcDestroyProgram(&job->program);
  return status;
}

/* A single cubin is the finished code. */
static kjit_status take_part(struct job *job) {
  const struct jit_part *const part = &job->request->parts[0];
  job->result->cubin = mem_duplicate(job->mem, part->data, part->bytes);
  job->result->cubin_bytes = part->bytes;
  return job->result->cubin ? KJIT_OK : error_no_memory(job->error);
}

/* Whether this NVRTC has precompiled headers, and room for one. */
static kjit_status prepare_pch(const struct job *job) {
  if (!job->pch) return KJIT_OK;
  const bool able = job->plan.compiles && job->api->nvrtcSetPCHHeapSize && job->api->nvrtcGetPCHCreateStatus &&
                    strlen(job->pch->file) + sizeof "--create-pch=" < PCH_OPTION_BYTES;
  if (!able) return error_set(job->error, KJIT_ERR_UNSUPPORTED, "NVRTC before 12.8 has no precompiled headers");
  if (job->pch->create) (void)job->api->nvrtcSetPCHHeapSize(PCH_HEAP_BYTES);
  return KJIT_OK;
}

/* Link, and note how long it took. */
static kjit_status link_unit(struct job *job) {
  const bool ranges = nvrtc_inspected(job->nvrtc) & NVRTC_INSPECT_RANGES;
  const uint64_t start = now_ns();
  if (ranges) nvtx_push("link", job->request->label, job->request->target.name);
  const kjit_status status = link_run(job);
  if (ranges) nvtx_pop();
  job->result->phases.link_ms = (double)(now_ns() - start) / 1e6;
  return status;
}

static kjit_status run(struct job *job) {
  kjit_status status = KJIT_OK;
  if (job->plan.compiles) status = compile_unit(job);
  if (status == KJIT_OK && job->pch && job->pch->create) return status;
  if (status == KJIT_OK && should_stop(&job->stop)) status = compile_failure(job, NVRTC_ERROR_CANCELLED);
  if (status == KJIT_OK && job->plan.links) status = link_unit(job);
  if (status == KJIT_OK && !job->plan.compiles && !job->plan.links) status = take_part(job);
  if (status == KJIT_OK) status = compile_read_output(job);
  if (status == KJIT_ERR_COMPILE && !job->result->log) {
    job->result->log = mem_strdup(job->mem, "");
    if (!job->result->log) status = error_no_memory(job->error);
  }
  if (status == KJIT_OK) return status;
  mem_free(job->mem, job->result->cubin);
  job->result->cubin = NULL;
  job->result->cubin_bytes = 0;
  return status;
}

enum compile_tools compile_tools_of(const struct jit_request *request) {
  const struct link_plan plan = link_plan_of(request);
  if (plan.compiles) return plan.links ? COMPILE_TOOLS_BOTH : COMPILE_TOOLS_NVRTC;
  return plan.links ? COMPILE_TOOLS_LINKER : COMPILE_TOOLS_NONE;
}

const char *compile_identity(struct nvrtc *nvrtc, const struct jit_request *request, kjit_error *error) {
  switch (compile_tools_of(request)) {
  case COMPILE_TOOLS_LINKER:
    return nvrtc_linker_identity(nvrtc, error);
  case COMPILE_TOOLS_BOTH:
    return nvrtc_identity_with_linker(nvrtc, error);
  case COMPILE_TOOLS_NONE:
    return "none";
  default:
    return nvrtc_identity(nvrtc, error);
  }
}

kjit_status compile_run(struct nvrtc *nvrtc, const struct jit_request *request, const struct mem *mem,
                        compile_stop stop, void *stop_user, struct compile_result *result, kjit_error *error) {
  return compile_run_pch(nvrtc, request, mem, stop, stop_user, NULL, result, error);
}

kjit_status compile_run_pch(struct nvrtc *nvrtc, const struct jit_request *request, const struct mem *mem,
                            compile_stop stop, void *stop_user, struct compile_pch *pch, struct compile_result *result,
                            kjit_error *error) {
  *result = (struct compile_result){0};
  struct job job = {.nvrtc = nvrtc, .mem = mem, .request = request, .pch = pch, .result = result, .error = error};
  kjit_status status = KJIT_OK;
  job.plan = link_plan_of(request);
  job.stop.stop = stop;
  job.stop.user = stop_user;
  if (job.plan.compiles) status = nvrtc_open(nvrtc, &job.api, &job.major, &job.minor, error);
  if (status == KJIT_OK && job.plan.compiles) status = check_target(&job);
  if (status == KJIT_OK) status = prepare_pch(&job);
  if (status == KJIT_OK && should_stop(&job.stop)) status = compile_failure(&job, NVRTC_ERROR_CANCELLED);
  if (status != KJIT_OK) return status;
  const uint64_t start = now_ns();
  text_init(&job.names, mem, SYMBOLS_MAX_BYTES / 2);
  status = run(&job);
  text_finish(&job.names);
  mem_free(mem, job.link_log);
  result->compile_ns = now_ns() - start;
  return status;
}

void compile_result_finish(struct compile_result *result, const struct mem *mem) {
  mem_free(mem, result->cubin);
  mem_free(mem, result->log);
  mem_free(mem, result->symbols);
  mem_free(mem, result->ptx);
  *result = (struct compile_result){0};
}
