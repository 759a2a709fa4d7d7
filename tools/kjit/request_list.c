/* The list of kernels that `kjit warm`, `bundle create` and `tune` compile: filled from sets, manifests and problems,
 * made distinct by sorting, and divided among machines. It is ordered by key before it is divided, so that machines
 * agree although their lists may have been made in another order. One thread. */
#include "request_list.h"

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void request_free(struct kernel_request *request) {
  free(request->recorded);
  free(request->label);
}

void request_list_free(struct request_list *list) {
  for (size_t i = 0; i < list->count; i++)
    request_free(&list->items[i]);
  free(list->items);
  kjit_runtime_destroy(list->planner);
  family_files_close(&list->files);
  *list = (struct request_list){0};
}

static kjit_status request_list_grow(struct request_list *list, kjit_error *error) {
  if (list->count < list->capacity) return KJIT_OK;
  const size_t capacity = list->capacity == 0 ? 128 : 2 * list->capacity;
  if (capacity > 2 * MOST_REQUESTS)
    return error_say(error, KJIT_ERR_UNSUPPORTED, "more than %d kernels asked for at once", MOST_REQUESTS);
  struct kernel_request *items = realloc(list->items, capacity * sizeof *items);
  if (items == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu requests", capacity);
  list->items = items;
  list->capacity = capacity;
  return KJIT_OK;
}

kjit_status request_check(kjit_config *config, const char *arch, kjit_error *error) {
  const kjit_status status = kjit_config_check(config, arch, error);
  if (status == KJIT_OK) *config = kjit_config_canonical(config);
  return status;
}

kjit_status request_choose(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                           kjit_config *config, kjit_error *error) {
  const kjit_status status = kjit_attention_choose(runtime, problem, arch, config, NULL, error);
  return status == KJIT_OK ? request_check(config, arch, error) : status;
}

static kjit_status add_one(struct request_list *list, const kjit_config *config, const char *arch, kjit_error *error) {
  const kjit_status status = request_list_grow(list, error);
  if (status != KJIT_OK) return status;
  struct kernel_request *request = &list->items[list->count++];
  *request = (struct kernel_request){.config = *config};
  snprintf(request->arch, sizeof request->arch, "%s", arch);
  return KJIT_OK;
}

kjit_status request_list_add(struct request_list *list, const kjit_config *config, const char *arch,
                             kjit_error *error) {
  kjit_config front;
  kjit_status status = add_one(list, config, arch, error);
  if (status == KJIT_OK) status = kjit_attention_front(config, NULL, NULL, &front, error);
  return status == KJIT_OK && front.family != NULL ? add_one(list, &front, arch, error) : status;
}

kjit_status request_list_add_recorded(struct request_list *list, const char *path, const char *label, const char *arch,
                                      kjit_error *error) {
  kjit_status status = request_list_grow(list, error);
  if (status != KJIT_OK) return status;
  struct kernel_request request = {.recorded = strdup(path), .label = strdup(label)};
  snprintf(request.arch, sizeof request.arch, "%s", arch);
  if (request.recorded != NULL && request.label != NULL) {
    list->items[list->count++] = request;
    return KJIT_OK;
  }
  request_free(&request);
  return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for a recorded request");
}

kjit_status request_artifact(kjit_runtime *runtime, const struct kernel_request *request, uint32_t flags,
                             kjit_artifact **artifact, kjit_error *error) {
  if (request->recorded != NULL)
    return kjit_recorded_build(runtime, request->recorded, request->arch, flags, artifact, error);
  return kjit_config_build(runtime, &request->config, request->arch, flags, artifact, error);
}

/* A recorded request's label begins with its family. */
static bool label_is_of(const char *label, const char *family) {
  const size_t bytes = strlen(family);
  return strncmp(label, family, bytes) == 0 && (label[bytes] == ' ' || label[bytes] == '\0');
}

static bool request_is_of(const struct kernel_request *request, const char *family) {
  if (request->recorded != NULL) return label_is_of(request->label, family);
  return strcmp(kjit_family_name(request->config.family), family) == 0;
}

static kjit_status planner_open(struct request_list *list, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  if (list->planner != NULL) return KJIT_OK;
  options.cache_mode = KJIT_CACHE_OFF;
  return kjit_runtime_create(&list->planner, &options, error);
}

/* All kernels of a backward call for dq, dk and dv. */
static kjit_status add_backward(struct request_list *list, const kjit_attention_problem *problem, const char *arch,
                                kjit_error *error) {
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  size_t count = 0;
  const uint32_t all = KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V;
  kjit_status status = kjit_attention_backward_choose(problem, all, arch, configs, &count, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = request_list_add(list, &configs[i], arch, error);
  return status;
}

kjit_status request_list_add_problem(struct request_list *list, const struct trial_problem *problem, const char *arch,
                                     kjit_error *error) {
  kjit_config config;
  if (problem->pass == PASS_BACKWARD) return add_backward(list, &problem->asked, arch, error);
  kjit_status status = planner_open(list, error);
  if (status == KJIT_OK) status = request_choose(list->planner, &problem->asked, arch, &config, error);
  return status == KJIT_OK ? request_list_add(list, &config, arch, error) : status;
}

bool arch_next(const char **at, char arch[ARCH_BYTES], kjit_error *error) {
  if (**at == '\0') return false;
  const size_t bytes = strcspn(*at, ",");
  const bool last = (*at)[bytes] == '\0';
  if (bytes == 0 || bytes >= ARCH_BYTES || (!last && (*at)[bytes + 1] == '\0')) {
    error_say(error, KJIT_ERR_PARSE, "'%.*s': an architecture is expected here, as in sm_80,sm_90a", 64, *at);
    return false;
  }
  memcpy(arch, *at, bytes);
  arch[bytes] = '\0';
  *at += bytes + (last ? 0 : 1);
  return true;
}

/* A config of a set on one architecture. */
static kjit_status add_member(struct request_list *list, kjit_config *config, const char *arch, kjit_error *error) {
  const bool is_own = kjit_family_find(kjit_family_name(config->family)) != NULL;
  const kjit_status status = request_check(config, arch, error);
  if (status == KJIT_OK) return request_list_add(list, config, arch, error);
  if (is_own || (status != KJIT_ERR_UNSUPPORTED && status != KJIT_ERR_INVALID_CONFIG)) return status;
  list->left_out++;
  *error = (kjit_error){0};
  return KJIT_OK;
}

static kjit_status add_set(struct request_list *list, const kjit_family *family, const char *set, const char *arch,
                           kjit_error *error) {
  kjit_config config;
  size_t count = 0;
  kjit_status status = kjit_family_set(family, set, 0, NULL, &count, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    status = kjit_family_set(family, set, i, &config, NULL, error);
    if (status == KJIT_OK) status = add_member(list, &config, arch, error);
  }
  return status;
}

kjit_status request_list_add_set(struct request_list *list, const kjit_family *family, const char *set,
                                 const char *archs, kjit_error *error) {
  char arch[ARCH_BYTES];
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && arch_next(&archs, arch, error))
    status = add_set(list, family, set, arch, error);
  return (kjit_status)error->status;
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

static int request_compare(const void *left, const void *right) {
  const struct kernel_request *a = left, *b = right;
  const int by_arch = strcmp(a->arch, b->arch);
  if (by_arch != 0) return by_arch;
  if (a->recorded == NULL && b->recorded == NULL) return kjit_config_compare(&a->config, &b->config);
  if (a->recorded == NULL || b->recorded == NULL) return a->recorded == NULL ? -1 : 1;
  /* Two manifests may have recorded the same request: their folders differ, and the digests in the end do not. */
  return strcmp(file_name(a->recorded), file_name(b->recorded));
}

void request_list_keep_families(struct request_list *list, const struct option_list *families) {
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++) {
    bool is_wanted = families->count == 0;
    for (size_t family = 0; family < families->count && !is_wanted; family++)
      is_wanted = request_is_of(&list->items[i], families->items[family]);
    if (is_wanted)
      list->items[kept++] = list->items[i];
    else
      request_free(&list->items[i]);
  }
  list->count = kept;
}

size_t request_list_leave_out(struct request_list *list, const bool *leave_out) {
  const size_t before = list->count;
  size_t kept = 0;
  for (size_t i = 0; i < before; i++)
    if (leave_out[i])
      request_free(&list->items[i]);
    else
      list->items[kept++] = list->items[i];
  list->count = kept;
  return before - kept;
}

size_t request_list_make_distinct(struct request_list *list) {
  size_t kept = 0;
  if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, request_compare);
  for (size_t i = 0; i < list->count; i++)
    if (kept == 0 || request_compare(&list->items[kept - 1], &list->items[i]) != 0)
      list->items[kept++] = list->items[i];
    else
      request_free(&list->items[i]);
  list->count = kept;
  return kept;
}

/* A request with its key, which orders the list. */
struct keyed_request {
  kjit_key key;
  struct kernel_request request;
};

static int key_compare(const void *left, const void *right) {
  const struct keyed_request *a = left, *b = right;
  return strcmp(a->key.request, b->key.request);
}

/* Compute the key without compiling. */
static kjit_status key_make(kjit_runtime *runtime, const struct kernel_request *request, kjit_key *key,
                            kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_status status = request_artifact(runtime, request, KJIT_BUILD_KEY_ONLY, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_key(artifact, key, error);
  kjit_artifact_release(artifact);
  return status;
}

static kjit_status keys_make(kjit_runtime *runtime, const struct request_list *list, struct keyed_request *keyed,
                             kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < list->count && status == KJIT_OK; i++) {
    keyed[i].request = list->items[i];
    keyed[i].key.struct_size = sizeof keyed[i].key;
    status = key_make(runtime, &list->items[i], &keyed[i].key, error);
  }
  return status;
}

kjit_status request_list_keep_shard(struct request_list *list, kjit_runtime *runtime, uint64_t index, uint64_t count,
                                    kjit_error *error) {
  size_t kept = 0;
  struct keyed_request *keyed = calloc(list->count + 1, sizeof *keyed);
  if (keyed == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu keys", list->count);
  const kjit_status status = keys_make(runtime, list, keyed, error);
  if (status == KJIT_OK) {
    qsort(keyed, list->count, sizeof *keyed, key_compare);
    for (size_t i = 0; i < list->count; i++)
      if (i % count == index - 1)
        list->items[kept++] = keyed[i].request;
      else
        request_free(&keyed[i].request);
    list->count = kept;
  }
  free(keyed);
  return status;
}

void request_print_config(const kjit_config *config, char text[KJIT_CONFIG_TEXT_MAX]) {
  if (kjit_config_print(config, 0, text, KJIT_CONFIG_TEXT_MAX, NULL) != KJIT_OK) text[0] = '\0';
}

void request_print(const struct kernel_request *request, char *text, size_t capacity) {
  char config[KJIT_CONFIG_TEXT_MAX];
  if (request->recorded != NULL) {
    const int family = (int)strcspn(request->label, " ");
    snprintf(text, capacity, "%.*s %s%s", family, request->label, request->arch, request->label + family);
    return;
  }
  request_print_config(&request->config, config);
  snprintf(text, capacity, "%s %s %s", kjit_family_name(request->config.family), request->arch, config);
}
