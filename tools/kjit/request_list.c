#include "request_list.h"

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void request_list_free(struct request_list *list) {
  free(list->items);
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

kjit_status request_list_add(struct request_list *list, const struct kernel_choice *choice, const char *arch,
                             kjit_error *error) {
  const kjit_status status = request_list_grow(list, error);
  if (status != KJIT_OK) return status;
  struct kernel_request *request = &list->items[list->count++];
  *request = (struct kernel_request){.choice = *choice};
  snprintf(request->arch, sizeof request->arch, "%s", arch);
  return KJIT_OK;
}

bool arch_next(const char **at, char arch[ARCH_BYTES], kjit_error *error) {
  if (**at == '\0') return false;
  const size_t bytes = strcspn(*at, ",");
  const bool last = (*at)[bytes] == '\0';
  if (bytes == 0 || bytes >= ARCH_BYTES || (!last && (*at)[bytes + 1] == '\0')) {
    error_say(error, KJIT_ERR_PARSE, "'%.*s': architectures are named like sm_80, separated by commas", 64, *at);
    return false;
  }
  memcpy(arch, *at, bytes);
  arch[bytes] = '\0';
  *at += bytes + (last ? 0 : 1);
  return true;
}

static kjit_status add_configs(struct request_list *list, const kjit_flash_config *configs, size_t count,
                               const char *archs, kjit_error *error) {
  char arch[ARCH_BYTES];
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && arch_next(&archs, arch, error))
    for (size_t i = 0; i < count && status == KJIT_OK; i++) {
      struct kernel_choice choice;
      const kjit_flash_variant plain = kjit_flash_variant_plain(&configs[i]);
      status = kernel_choice_of_flash(&plain, arch, &choice, error);
      if (status == KJIT_OK) status = request_list_add(list, &choice, arch, error);
    }
  return (kjit_status)error->status;
}

kjit_status request_list_add_set(struct request_list *list, const char *set, const char *archs, kjit_error *error) {
  size_t count = 0;
  kjit_status status = kjit_flash_config_set(set, NULL, 0, &count, error);
  if (status != KJIT_OK) return status;
  kjit_flash_config *configs = calloc(count, sizeof *configs);
  if (configs == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu configs", count);
  status = kjit_flash_config_set(set, configs, count, &count, error);
  if (status == KJIT_OK) status = add_configs(list, configs, count, archs, error);
  free(configs);
  return status;
}

static int request_compare(const void *left, const void *right) {
  const struct kernel_request *a = left, *b = right;
  const int by_arch = strcmp(a->arch, b->arch);
  return by_arch != 0 ? by_arch : kernel_choice_compare(&a->choice, &b->choice);
}

size_t request_list_make_distinct(struct request_list *list) {
  size_t kept = 0;
  if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, request_compare);
  for (size_t i = 0; i < list->count; i++)
    if (kept == 0 || request_compare(&list->items[kept - 1], &list->items[i]) != 0)
      list->items[kept++] = list->items[i];
  list->count = kept;
  return kept;
}

/* Where a request stands in the order of all keys. */
struct keyed_request {
  kjit_key key;
  struct kernel_request request;
};

static int key_compare(const void *left, const void *right) {
  const struct keyed_request *a = left, *b = right;
  return strcmp(a->key.request, b->key.request);
}

static kjit_status keys_make(kjit_runtime *runtime, const struct request_list *list, struct keyed_request *keyed,
                             kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < list->count && status == KJIT_OK; i++) {
    keyed[i].request = list->items[i];
    keyed[i].key.struct_size = sizeof keyed[i].key;
    status = kernel_choice_key(runtime, &list->items[i].choice, list->items[i].arch, &keyed[i].key, error);
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
    for (size_t i = index - 1; i < list->count; i += count)
      list->items[kept++] = keyed[i].request;
    list->count = kept;
  }
  free(keyed);
  return status;
}

void request_print(const struct kernel_request *request, char *text, size_t capacity) {
  char config[KERNEL_CHOICE_TEXT_MAX];
  kernel_choice_print(&request->choice, config);
  snprintf(text, capacity, "%s %s %s", kernel_choice_family(&request->choice), request->arch, config);
}
