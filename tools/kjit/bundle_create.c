/* `kjit bundle create`: collects kernels and writes them as one bundle, or as C source to link in.
 *
 * 1. Kernels come from a list (--set, --manifest), which is compiled by several processes first, or from the cache.
 * 2. The library's writer makes the bundle in memory; an empty one is an error, because an application that ships
 *    nothing would notice only at its users.
 * 3. With --key the bundle is signed.
 * 4. The file is written whole or not at all (output_file.c).
 *
 * One thread; the compiling processes end before this process opens a runtime. */
#include "bundle.h"
#include "interrupt.h"
#include "progress.h"
#include "warm_pool.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Add the cache's kernels of one family, in one pass for each architecture; an empty family, or no --arch, means all.
 */
static kjit_status add_cache_part(const struct bundle_options *options, kjit_runtime *runtime,
                                  kjit_bundle_writer *writer, const char *family, kjit_error *error) {
  char arch[ARCH_BYTES] = "", filter[512];
  const char *archs = options->asked.archs;
  kjit_status status = KJIT_OK;
  do {
    if (archs != NULL && !arch_next(&archs, arch, error)) break;
    const char *comma = family[0] != '\0' && arch[0] != '\0' ? "," : "";
    snprintf(filter, sizeof filter, "%s%s%s%s%s", family[0] != '\0' ? "family=" : "", family, comma,
             arch[0] != '\0' ? "arch=" : "", arch);
    status = kjit_bundle_writer_add_cache(writer, runtime, filter, NULL, error);
  } while (status == KJIT_OK && archs != NULL);
  return (kjit_status)error->status;
}

static kjit_status add_cache(const struct bundle_options *options, kjit_runtime *runtime, kjit_bundle_writer *writer,
                             kjit_error *error) {
  if (options->families.count == 0) return add_cache_part(options, runtime, writer, "", error);
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < options->families.count && status == KJIT_OK; i++)
    status = add_cache_part(options, runtime, writer, options->families.items[i], error);
  return status;
}

/* Report the first failure of a list that was built, with the request in front. */
static kjit_status results_check(const struct request_list *list, const struct warm_result *results,
                                 kjit_error *error) {
  char text[KJIT_CONFIG_TEXT_MAX + 64];
  for (size_t i = 0; i < list->count; i++) {
    if (results[i].status == KJIT_OK) continue;
    request_print(&list->items[i], text, sizeof text);
    return error_say(error, (kjit_status)results[i].status, "%.160s: %.300s", text, results[i].message);
  }
  return KJIT_OK;
}

/* Compile the list into the cache with several processes, so that the next step only reads. */
static kjit_status list_build(const struct bundle_options *options, const struct request_list *list,
                              kjit_error *error) {
  struct warm_result *results = NULL;
  struct progress progress;
  interrupt_catch();
  progress_start(&progress);
  kjit_status status = warm_pool_run(list, options->jobs, 0, progress_show, &progress, &results, NULL, error);
  interrupt_release();
  if (status == KJIT_OK) status = results_check(list, results, error);
  warm_results_free(results);
  return status;
}

static kjit_status list_add(const struct request_list *list, kjit_runtime *runtime, kjit_bundle_writer *writer,
                            kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < list->count && status == KJIT_OK; i++) {
    kjit_artifact *artifact = NULL;
    status = request_artifact(runtime, &list->items[i], 0, &artifact, error);
    if (status == KJIT_OK) status = kjit_bundle_writer_add(writer, artifact, error);
    kjit_artifact_release(artifact);
  }
  return status;
}

static kjit_status add_asked(const struct bundle_options *options, kjit_bundle_writer *writer, kjit_error *error) {
  struct request_list list = {0};
  kjit_runtime *runtime = NULL;
  kjit_status status = asked_collect(&options->asked, &list, error);
  request_list_make_distinct(&list);
  request_list_keep_families(&list, &options->families);
  if (status == KJIT_OK) status = list_build(options, &list, error);
  if (status == KJIT_OK) status = open_runtime(&runtime, error);
  if (status == KJIT_OK) status = list_add(&list, runtime, writer, error);
  kjit_runtime_destroy(runtime);
  request_list_free(&list);
  return status;
}

static kjit_status add_everything(const struct bundle_options *options, kjit_bundle_writer *writer, kjit_error *error) {
  kjit_runtime *runtime = NULL;
  if (options->programs.count > 0) return bundle_add_programs(options, writer, error);
  if (options->asked.sets.count + options->asked.manifests.count > 0) return add_asked(options, writer, error);
  kjit_status status = open_runtime(&runtime, error);
  if (status == KJIT_OK) status = add_cache(options, runtime, writer, error);
  kjit_runtime_destroy(runtime);
  return status;
}

static kjit_status blob_sign(const struct bundle_options *options, const kjit_bundle_blob *blob,
                             unsigned char signature[KJIT_BUNDLE_SIGNATURE_BYTES], kjit_error *error) {
  char secret[BUNDLE_KEY_HEX_BYTES];
  kjit_bundle *bundle = NULL;
  kjit_status status = bundle_key_read(options->keys.items[0], BUNDLE_KEY_SECRET, secret, error);
  if (status == KJIT_OK) status = kjit_bundle_open(&bundle, NULL, blob, NULL, 0, error);
  if (status == KJIT_OK) status = kjit_bundle_sign(bundle, secret, signature, error);
  kjit_bundle_close(bundle);
  explicit_bzero(secret, sizeof secret);
  return status;
}

static kjit_status blob_write(const struct bundle_options *options, const kjit_bundle_blob *blob, kjit_error *error) {
  const char *path = options->words.items[1];
  unsigned char signature[KJIT_BUNDLE_SIGNATURE_BYTES];
  struct output_piece pieces[] = {{blob->data, blob->bytes}, {signature, 0}};
  kjit_status status = KJIT_OK;
  if (options->keys.count == 1) {
    status = blob_sign(options, blob, signature, error);
    pieces[1].bytes = sizeof signature;
  }
  if (status != KJIT_OK) return status;
  if (!options->c_source) return output_file_write(path, 0644, pieces, 2, error);
  char *text = bundle_c_source("kjit bundle create --c-source: for kjit_runtime_options.bundle_blobs", options->symbol,
                               pieces, 2);
  if (text == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for the C source");
  const struct output_piece source = {text, strlen(text)};
  status = output_file_write(path, 0644, &source, 1, error);
  free(text);
  return status;
}

/* Refuse an empty bundle, because an application that ships one would notice only at its users. */
static kjit_status blob_check(const struct bundle_options *options, const kjit_bundle_blob *blob, kjit_error *error) {
  kjit_bundle *bundle = NULL;
  kjit_bundle_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_bundle_open(&bundle, NULL, blob, NULL, 0, error);
  if (status == KJIT_OK) status = kjit_bundle_get_info(bundle, &info, error);
  kjit_bundle_close(bundle);
  if (status != KJIT_OK || info.entries > 0) return status;
  return error_say(error, KJIT_ERR_NOT_FOUND, "%s is not written: there is no kernel to put into it",
                   options->words.items[1]);
}

static int blob_report(const struct bundle_options *options, const kjit_bundle_blob *blob, kjit_error *error) {
  kjit_bundle *bundle = NULL;
  kjit_bundle_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_bundle_open(&bundle, NULL, blob, NULL, 0, error);
  if (status == KJIT_OK) status = kjit_bundle_get_info(bundle, &info, error);
  kjit_bundle_close(bundle);
  if (status != KJIT_OK) return report_failure(options->json, error, NULL);
  const uint64_t bytes = info.bytes + (options->keys.count == 1 ? KJIT_BUNDLE_SIGNATURE_BYTES : 0);
  if (options->json)
    return print_json(json_pack("{s:o, s:I, s:I, s:I, s:s}", "path", json_text(options->words.items[1]), "bytes",
                                (json_int_t)bytes, "entries", (json_int_t)info.entries, "archs", (json_int_t)info.archs,
                                "digest", info.digest));
  printf("%s: %u kernels for %u architectures, %llu bytes, content %s\n", options->words.items[1], info.entries,
         info.archs, (unsigned long long)bytes, info.digest);
  return print_text("");
}

static int create_with(const struct bundle_options *options, kjit_bundle_writer *writer) {
  kjit_bundle_blob blob = {0};
  kjit_error error = {0};
  kjit_status status = add_everything(options, writer, &error);
  if (status == KJIT_OK) status = kjit_bundle_writer_finish(writer, &blob, &error);
  if (status == KJIT_OK) status = blob_check(options, &blob, &error);
  if (status == KJIT_OK) status = blob_write(options, &blob, &error);
  return status == KJIT_OK ? blob_report(options, &blob, &error) : report_failure(options->json, &error, NULL);
}

int bundle_create(const struct bundle_options *options) {
  kjit_bundle_writer *writer = NULL;
  kjit_error error = {0};
  if (options->keys.count > 1) return usage_error("bundle create: one --key at most");
  if (!bundle_symbol_is_sound(options->symbol))
    return usage_error("--symbol %s: a C identifier is expected", options->symbol);
  if (options->asked.sets.count > 0 && asked_check(&options->asked, "bundle create") >= 0) return EXIT_USAGE;
  void *compressor = bundle_compressor_create();
  if (compressor == NULL || kjit_bundle_writer_create(&writer, bundle_compress, compressor, &error) != KJIT_OK) {
    bundle_compressor_free(compressor);
    return failure("out of memory");
  }
  const int code = create_with(options, writer);
  kjit_bundle_writer_destroy(writer);
  bundle_compressor_free(compressor);
  interrupt_pass_on();
  return code;
}
