/* `kjit bundle inspect` and `kjit bundle verify`: both open the bundle, visit every kernel and print a summary.
 *
 * inspect lists the kernels and shows who signed the file; verify prints the summary alone and refuses a bundle that
 * none of the given public keys signed. Either fails when a kernel is damaged. One thread. */
#include "bundle.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct showing {
  bool kernels; /* print one line for each */
  json_t *list; /* or collect them here */
  uint64_t cubin_bytes, damaged;
  char damage[496]; /* of the first one */
};

static void kernel_print(const kjit_cache_entry *entry) {
  if (entry->status == KJIT_OK)
    printf("%.16s  %-8s %7llu of %8llu bytes  %s %s\n", entry->key, entry->arch, (unsigned long long)entry->bytes,
           (unsigned long long)entry->cubin_bytes, entry->family, entry->label);
  else
    printf("%.16s  %-8s damaged: %s\n", entry->key, entry->arch, entry->damage);
}

static json_t *kernel_json(const kjit_cache_entry *entry) {
  return json_pack("{s:s, s:o, s:o, s:s, s:o, s:I, s:I, s:b, s:s}", "key", entry->key, "family",
                   json_text(entry->family), "label", json_text(entry->label), "arch", entry->arch, "entry",
                   json_text(entry->entry), "bytes", (json_int_t)entry->bytes, "cubin_bytes",
                   (json_int_t)entry->cubin_bytes, "damaged", entry->status != KJIT_OK, "damage", entry->damage);
}

static int kernel_show(void *user, const kjit_cache_entry *entry) {
  struct showing *showing = user;
  showing->cubin_bytes += entry->cubin_bytes;
  if (entry->status != KJIT_OK && showing->damaged++ == 0)
    snprintf(showing->damage, sizeof showing->damage, "%s", entry->damage);
  if (showing->list != NULL)
    json_array_append_new(showing->list, kernel_json(entry));
  else if (showing->kernels)
    kernel_print(entry);
  return 0;
}

static int bundle_print(const struct bundle_options *options, const kjit_bundle_info *info, struct showing *showing) {
  if (options->json)
    return print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o}", "bytes", (json_int_t)info->bytes, "entries",
                                (json_int_t)info->entries, "archs", (json_int_t)info->archs, "cubin_bytes",
                                (json_int_t)showing->cubin_bytes, "damaged", (json_int_t)showing->damaged, "digest",
                                info->digest, "signer", info->signer, "kernels", showing->list));
  printf("%u kernels for %u architectures, %llu bytes for %llu bytes of cubins\n", info->entries, info->archs,
         (unsigned long long)info->bytes, (unsigned long long)showing->cubin_bytes);
  printf("content %s\n", info->digest);
  printf("%s%s\n", info->signer[0] != '\0' ? "signed by " : "not signed", info->signer);
  return print_text("");
}

static kjit_status bundle_look(const struct bundle_options *options, const char *path, struct showing *showing,
                               kjit_bundle_info *info, kjit_error *error) {
  kjit_bundle *bundle = NULL;
  const char **keys = bundle_keys_read(&options->keys, error);
  if (keys == NULL) return (kjit_status)error->status;
  kjit_status status = kjit_bundle_open(&bundle, path, NULL, keys, options->keys.count, error);
  if (status == KJIT_OK) status = kjit_bundle_get_info(bundle, info, error);
  if (status == KJIT_OK) status = kjit_bundle_list(bundle, kernel_show, showing, error);
  kjit_bundle_close(bundle);
  free((void *)keys);
  return status;
}

/* Visit and print the bundle at `path`. A damaged kernel does not stop the visit, so that everything else is still
 * shown; the exit code is EXIT_FAILED then. */
static int bundle_report(const struct bundle_options *options, const char *path, bool kernels) {
  struct showing showing = {.kernels = kernels, .list = options->json ? json_array() : NULL};
  kjit_bundle_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  if (bundle_look(options, path, &showing, &info, &error) != KJIT_OK) {
    json_decref(showing.list);
    return report_failure(options->json, &error, NULL);
  }
  const int code = bundle_print(options, &info, &showing);
  if (showing.damaged == 0) return code;
  return failure("%llu kernels are damaged; the first: %s", (unsigned long long)showing.damaged, showing.damage);
}

int bundle_inspect(const struct bundle_options *options) {
  const bool is_signing = options->out != NULL;
  struct bundle_options shown = *options;
  shown.keys = (struct option_list){0}; /* without trusted keys the signer is shown but not required */
  return bundle_report(&shown, is_signing ? options->out : options->words.items[1], true);
}

int bundle_verify(const struct bundle_options *options) {
  return bundle_report(options, options->words.items[1], false);
}
