/* A program: a source with all that belongs to it, copied once, and the artifacts of its variants. A repeated request
 * is a look-up by the strings that were asked for, under one lock that is held across nothing but the look-up. An
 * artifact stays with the program until it is released. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/struct_intake.h"
#include "base/table.h"
#include "base/text.h"
#include "jit/builder_custom.h"
#include "jit/builder_sealed.h"
#include "jit/request/counts.h"
#include "jit/request/custom_request.h"
#include "runtime/program.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

/* Variants of one source differ in a few defines; beyond this the caller means something else. */
#define VARIANTS_MAX 65536

/* Room for the names of usual variants, without asking for memory. */
#define NAME_BYTES 512
#define NAME_LIMIT ((size_t)1 << 24)

struct variant {
  UT_hash_handle hh;
  kjit_artifact *artifact;
  char name[]; /* entry, arch and defines, each ended by NUL */
};

struct kjit_program {
  kjit_runtime *runtime;
  kjit_build_request request; /* its strings are copies; of a sealed program all zero */
  void *copy;                 /* of all of them */
  struct sealed *sealed;      /* NULL: what is to be built is in the request */
  pthread_mutex_t lock;
  struct variant *variants; /* by name */
};

/* One kjit_program_get() that has to build, or one that loads. */
struct program_call {
  kjit_program *program;
  kjit_artifact **out;
  const char *name; /* of the kernel that is wanted; NULL: the request's entry */
  struct kjit_module **module;
  kjit_kernel **kernel; /* NULL: the module alone is wanted */
  const char *arch;     /* of the current device, where a kernel is wanted */
  uint32_t capability;  /* of the same */
};

/* -- Variants ----------------------------------------------------------------------------------------------------- */

/* NULL and "" are one: both mean what the program's own request says. */
static void put_string(struct text *name, const char *string) {
  text_append_bytes(name, string ? string : "", (string ? strlen(string) : 0) + 1);
}

/* The strings with their NULs, so that no two variants have one name. A define without a value means 1 to the compiler,
 * and so it does here. */
static void write_name(struct text *name, const kjit_program_variant *variant) {
  put_string(name, variant->entry);
  put_string(name, variant->arch);
  for (size_t i = 0; i < variant->define_count; i++) {
    put_string(name, variant->defines[i].name);
    put_string(name, variant->defines[i].value ? variant->defines[i].value : "1");
  }
}

/* The caller holds the lock. */
static struct variant *find(const kjit_program *program, const struct text *name, unsigned hash) {
  struct variant *variant;
  HASH_FIND_BYHASHVALUE(hh, program->variants, name->data, name->bytes, hash, variant);
  return variant;
}

/* The artifact, with a reference for the caller, who may keep it longer than the program. NULL: not built yet. */
static kjit_artifact *look_up(kjit_program *program, const struct text *name, unsigned hash) {
  pthread_mutex_lock(&program->lock);
  const struct variant *variant = find(program, name, hash);
  kjit_artifact *artifact = variant ? kjit_artifact_retain(variant->artifact) : NULL;
  pthread_mutex_unlock(&program->lock);
  return artifact;
}

/* Of two threads that built one variant, the first one's artifact stays. Out of memory: it is not kept. */
static void keep(kjit_program *program, const struct text *name, unsigned hash, kjit_artifact *artifact) {
  const struct mem *mem = &program->runtime->mem;
  struct variant *made = mem_alloc(mem, sizeof *made + name->bytes);
  if (!made) return;
  memcpy(made->name, name->data, name->bytes);
  pthread_mutex_lock(&program->lock);
  bool added = HASH_COUNT(program->variants) < VARIANTS_MAX && !find(program, name, hash);
  if (added) HASH_ADD_KEYPTR_BYHASHVALUE(hh, program->variants, made->name, name->bytes, hash, made);
  if (added) made->artifact = kjit_artifact_retain(artifact);
  pthread_mutex_unlock(&program->lock);
  if (!added) mem_free(mem, made);
}

/* -- The API ------------------------------------------------------------------------------------------------------ */

void kjit_program_release(kjit_program *program) {
  if (!program) return;
  const struct mem *mem = &program->runtime->mem;
  struct variant *variant, *next;
  HASH_ITER(hh, program->variants, variant, next) {
    HASH_DEL(program->variants, variant);
    kjit_artifact_release(variant->artifact);
    mem_free(mem, variant);
  }
  pthread_mutex_destroy(&program->lock);
  sealed_close(program->sealed);
  mem_free(mem, program->copy);
  mem_free(mem, program);
}

/* A program is made of a request, which is copied, or of a sealed file, which it owns from here on. */
kjit_status program_make(kjit_runtime *runtime, const kjit_build_request *request, struct sealed *sealed,
                         kjit_program **out, kjit_error *error) {
  kjit_program *program = mem_alloc(&runtime->mem, sizeof *program);
  void *copy = mem_alloc(&runtime->mem, program_copy_bytes(request));
  if (!program || !copy || pthread_mutex_init(&program->lock, NULL)) {
    mem_free(&runtime->mem, copy);
    mem_free(&runtime->mem, program);
    return error_no_memory(error);
  }
  program->runtime = runtime;
  program->request = program_copy(request, copy);
  program->copy = copy;
  program->sealed = sealed;
  *out = program;
  return KJIT_OK;
}

kjit_status kjit_program_create(kjit_runtime *runtime, const kjit_build_request *request, kjit_program **out,
                                kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!request) return error_invalid(error, "request", "must not be NULL");
  kjit_build_request copy;
  kjit_status status = struct_intake(&copy, sizeof copy, request, REQUEST_OLDEST_BYTES, "request", error);
  if (status == KJIT_OK) status = request_check_counts(&copy, error);
  return status == KJIT_OK ? program_make(runtime, &copy, NULL, out, error) : status;
}

/* It may be called again after a failure, of which a failed compile's log is left. */
static kjit_status get_artifact(void *user, const struct jit_request *request, kjit_error *error) {
  struct program_call *call = user;
  kjit_artifact_release(*call->out);
  return builder_get(call->program->runtime->builder, request, call->out, error);
}

/* As get_wanted() of module_api.c, for a variant: the kernel is looked up by the name that the variant has, because the
 * request's entry is the program's. */
static kjit_status get_loaded(void *user, const struct jit_request *request, kjit_error *error) {
  struct program_call *call = user;
  const char *const name = call->name ? call->name : request->entry;
  if (request->flags & (KJIT_BUILD_KEY_ONLY | KJIT_BUILD_OBJECT))
    return error_invalid(error, "flags", "KJIT_BUILD_KEY_ONLY and KJIT_BUILD_OBJECT give no kernel");
  if (call->kernel && !*name)
    return error_invalid(error, "entry", "must name the kernel; kjit_program_get_module() takes a variant without");
  const char *const entry = *request->entry ? request->entry : NULL;
  kjit_status status = module_get(call->program->runtime, request, entry, call->module, error);
  if (status != KJIT_OK || !call->kernel) return status;
  status = module_find_kernel(*call->module, name, call->kernel, error);
  if (status == KJIT_OK) return status;
  kjit_module_release(*call->module);
  *call->module = NULL;
  return status;
}

/* A sealed program has no source: its variants are looked up among those that were sealed, by entry, architecture and
 * defines. */
static kjit_status build_sealed(struct program_call *call, const kjit_program_variant *variant, builder_custom_act act,
                                kjit_error *error) {
  const kjit_program *program = call->program;
  const struct sealed_wanted wanted = {.entry = variant->entry,
                                       .arch = variant->arch,
                                       .capability = call->capability,
                                       .defines = variant->defines,
                                       .define_count = variant->define_count};
  return builder_sealed(program->runtime->builder, program->sealed, &wanted, variant->flags, act, call, error);
}

/* The program's request with what the variant says otherwise; the variant's defines follow the program's. */
static kjit_status build(struct program_call *call, const kjit_program_variant *variant, builder_custom_act act,
                         kjit_error *error) {
  const kjit_program *program = call->program;
  const struct mem *mem = &program->runtime->mem;
  kjit_build_request request = program->request;
  const size_t own = request.define_count;
  if (program->sealed) return build_sealed(call, variant, act, error);
  kjit_define *defines = mem_alloc_array(mem, own + variant->define_count, sizeof *defines);
  if (!defines) return error_no_memory(error);
  if (own) memcpy(defines, request.defines, own * sizeof *defines);
  if (variant->define_count) memcpy(defines + own, variant->defines, variant->define_count * sizeof *defines);
  request.defines = defines;
  request.define_count = own + variant->define_count;
  if (variant->entry) request.entry = variant->entry;
  if (variant->arch) request.arch = variant->arch;
  request.flags |= variant->flags;
  const kjit_status status = builder_custom(program->runtime->builder, &request, NULL, call->arch, act, call, error);
  mem_free(mem, defines);
  return status;
}

static kjit_status check_variant(const kjit_program *program, const kjit_program_variant *variant, kjit_error *error) {
  if (!program) return error_invalid(error, "program", "must not be NULL");
  if (variant->struct_size < sizeof *variant) return error_invalid(error, "variant", "struct_size is not set");
  return request_check_count("variant.defines", variant->define_count, variant->defines, REQUEST_DEFINES_MAX, error);
}

static const kjit_program_variant no_variant = {.struct_size = sizeof no_variant};

/* A short name is written on the stack, so that a repeated request allocates nothing. A key alone is not kept, because
 * it would be handed out where code is wanted. */
kjit_status kjit_program_get(kjit_program *program, const kjit_program_variant *variant, kjit_artifact **out,
                             kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!variant) variant = &no_variant;
  kjit_status status = check_variant(program, variant, error);
  if (status != KJIT_OK) return status;
  char buffer[NAME_BYTES];
  struct text name, large;
  text_init_fixed(&name, buffer, sizeof buffer);
  text_init(&large, &program->runtime->mem, NAME_LIMIT);
  write_name(&name, variant);
  if (name.failed) write_name(&large, variant);
  const struct text *used = name.failed ? &large : &name;
  if (used->failed) {
    text_finish(&large);
    return error_no_memory(error);
  }
  const unsigned hash = (unsigned)hash_64(used->data, used->bytes);
  *out = look_up(program, used, hash);
  if (!*out) {
    struct program_call call = {.program = program, .out = out};
    status = build(&call, variant, get_artifact, error);
    if (status == KJIT_OK && !((variant->flags | program->request.flags) & KJIT_BUILD_KEY_ONLY))
      keep(program, used, hash, *out);
  }
  text_finish(&large);
  return status;
}

/* A variant for the current device, loaded. */
static kjit_status get_for_device(struct program_call *call, const kjit_program_variant *variant, kjit_error *error) {
  if (!variant) variant = &no_variant;
  kjit_status status = check_variant(call->program, variant, error);
  if (status != KJIT_OK) return status;
  struct gpu *gpu = &call->program->runtime->gpu;
  const struct device *device;
  int32_t ordinal;
  status = gpu_current(gpu, &ordinal, error);
  if (status == KJIT_OK) status = gpu_device(gpu, ordinal, &device, error);
  if (status != KJIT_OK) return status;
  call->name = variant->entry;
  call->arch = device->info.arch_specific;
  call->capability = device->capability;
  return build(call, variant, get_loaded, error);
}

kjit_status kjit_program_get_kernel(kjit_program *program, const kjit_program_variant *variant, kjit_kernel **out,
                                    kjit_error *error) {
  struct kjit_module *module = NULL;
  struct program_call call = {.program = program, .module = &module, .kernel = out};
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  return get_for_device(&call, variant, error);
}

kjit_status kjit_program_get_module(kjit_program *program, const kjit_program_variant *variant, kjit_module **out,
                                    kjit_error *error) {
  struct program_call call = {.program = program, .module = out};
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  return get_for_device(&call, variant, error);
}

const struct sealed *program_sealed(const kjit_program *program) {
  return program->sealed;
}
