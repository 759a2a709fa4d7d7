/* kjit pack: sources with everything that they include, sealed into one file that an application ships.
 *
 * Steps: read each source, build each of its kernels for each architecture (or find it in the cache), seal what the
 * compile read, write the file or C source. One thread. */
#include "bundle.h"
#include "custom_source.h"
#include "request_list.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kjit pack FILE.cu... --entry [FILE.cu:]NAME... --arch A,B,... -o OUT [-D NAME[=VALUE]]... [-I DIR]...\n"
    "                 [--option OPTION]... [--without-texts] [--key SECRET] [--c-source [--symbol NAME]] [--json]\n"
    "       kjit pack --list PROGRAM [--json]          what is in one\n\n"
    "A sealed program is one read-only file with the sources, everything that they include, options, defines, names\n"
    "and architectures. A program opens it with kjit_program_open() and needs no header then. Its kernels are found "
    "in\n"
    "bundles and caches by the key that the sources have; 'kjit bundle create OUT --program PROGRAM' makes the "
    "bundle.\n\n"
    "  --entry NAME     a kernel; of several sources, FILE.cu:NAME says whose. Repeatable\n"
    "  --arch A,B,...   the architectures\n"
    "  -o OUT           the file to write\n"
    "  -D NAME[=VALUE]  a define in front of each source; repeatable\n"
    "  -I DIR           a folder searched for headers; repeatable\n"
    "  --option OPTION  a further compiler option; repeatable\n"
    "  --without-texts  seal names and digests alone: kernels are found and cannot be compiled\n"
    "  --key FILE       the secret key to sign with\n"
    "  --c-source       write C source, to be linked into a program: NAME[] and NAME_bytes\n"
    "  --symbol NAME    its name; sealed_program by default\n";

struct pack_options {
  struct option_list words, entries, defines, include_dirs, options;
  const char *archs, *out, *symbol, *key;
  bool without_texts, c_source, list, json;
};

struct counts {
  uint64_t kernels, files, bytes;
  int has_texts;
};

/* -- Sealing ------------------------------------------------------------------------------------------------------ */

/* The name of an entry if it is one of this file's, else NULL. */
static const char *entry_of(const struct pack_options *options, const char *entry, const char *path) {
  const size_t bytes = strlen(path);
  if (options->words.count == 1 && strncmp(entry, path, bytes) != 0) return entry;
  if (strncmp(entry, path, bytes) == 0 && entry[bytes] == ':' && entry[bytes + 1] != ':') return entry + bytes + 1;
  return options->words.count == 1 ? entry : NULL;
}

static kjit_status kernel_seal(kjit_sealer *sealer, kjit_runtime *runtime, const kjit_build_request *request,
                               kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info, .log = ""};
  const kjit_status status = kjit_sealer_add(sealer, runtime, request, &artifact, error);
  if (artifact != NULL && kjit_artifact_get_info(artifact, &info, NULL) == KJIT_OK && info.log[0] != '\0')
    fprintf(stderr, "%s\n", info.log);
  kjit_artifact_release(artifact);
  return status;
}

static kjit_status file_seal(const struct pack_options *options, const char *path, kjit_sealer *sealer,
                             kjit_runtime *runtime, kjit_error *error) {
  struct custom_source source;
  size_t sealed = 0;
  kjit_status status = custom_source_read(&source, path, &options->defines, &options->include_dirs, error);
  source.request.options = options->options.items;
  source.request.option_count = options->options.count;
  for (size_t i = 0; i < options->entries.count && status == KJIT_OK; i++) {
    char arch[ARCH_BYTES] = "";
    const char *archs = options->archs;
    source.request.entry = entry_of(options, options->entries.items[i], path);
    if (source.request.entry == NULL) continue;
    while (status == KJIT_OK && arch_next(&archs, arch, error)) {
      source.request.arch = arch;
      status = kernel_seal(sealer, runtime, &source.request, error);
      sealed++;
    }
    if (status == KJIT_OK) status = (kjit_status)error->status;
  }
  custom_source_free(&source);
  if (status != KJIT_OK || sealed > 0) return status;
  return error_say(error, KJIT_ERR_INVALID_ARG, "%s: no --entry names one of its kernels; write --entry %s:NAME", path,
                   path);
}

/* An entry of no file would be left out in silence. */
static const char *entry_stray(const struct pack_options *options) {
  for (size_t i = 0; i < options->entries.count; i++) {
    bool known = false;
    for (size_t j = 0; j < options->words.count; j++)
      known |= entry_of(options, options->entries.items[i], options->words.items[j]) != NULL;
    if (!known) return options->entries.items[i];
  }
  return NULL;
}

/* -- Writing ------------------------------------------------------------------------------------------------------ */

static kjit_status blob_write(const struct pack_options *options, const kjit_sealer *sealer,
                              const kjit_bundle_blob *blob, kjit_error *error) {
  unsigned char signature[KJIT_BUNDLE_SIGNATURE_BYTES];
  char secret[BUNDLE_KEY_HEX_BYTES];
  struct output_piece pieces[] = {{blob->data, blob->bytes}, {signature, 0}};
  kjit_status status = KJIT_OK;
  if (options->key != NULL) {
    status = bundle_key_read(options->key, BUNDLE_KEY_SECRET, secret, error);
    if (status == KJIT_OK) status = kjit_sealer_sign(sealer, secret, signature, error);
    explicit_bzero(secret, sizeof secret);
    pieces[1].bytes = sizeof signature;
  }
  if (status != KJIT_OK) return status;
  if (!options->c_source) return output_file_write(options->out, 0644, pieces, 2, error);
  char *text = bundle_c_source("kjit pack --c-source: for kjit_program_open()", options->symbol, pieces, 2);
  if (text == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for the C source");
  const struct output_piece source = {text, strlen(text)};
  status = output_file_write(options->out, 0644, &source, 1, error);
  free(text);
  return status;
}

static int kernel_count(void *user, const kjit_program_kernel *kernel) {
  struct counts *counts = user;
  counts->kernels++;
  if (kernel->files > counts->files) counts->files = kernel->files;
  counts->has_texts = (int)kernel->has_texts;
  return 0;
}

static kjit_status blob_count(kjit_runtime *runtime, const kjit_bundle_blob *blob, struct counts *counts,
                              kjit_error *error) {
  kjit_program *program = NULL;
  kjit_status status = kjit_program_open(runtime, NULL, blob, &program, error);
  if (status == KJIT_OK) status = kjit_program_list(program, kernel_count, counts, error);
  kjit_program_release(program);
  counts->bytes = blob->bytes;
  return status;
}

static int counts_print(const struct pack_options *options, const struct counts *counts) {
  if (options->json)
    return print_json(json_pack("{s:o, s:I, s:I, s:I, s:b}", "path", json_text(options->out), "bytes",
                                (json_int_t)counts->bytes, "kernels", (json_int_t)counts->kernels, "files",
                                (json_int_t)counts->files, "texts", counts->has_texts));
  printf("%s: %llu kernels, %llu files in the largest closure, %llu bytes%s\n", options->out,
         (unsigned long long)counts->kernels, (unsigned long long)counts->files, (unsigned long long)counts->bytes,
         counts->has_texts ? "" : ", without texts");
  return print_text("");
}

static int pack_with(const struct pack_options *options, kjit_sealer *sealer) {
  kjit_runtime *runtime = NULL;
  kjit_bundle_blob blob = {0};
  struct counts counts = {0};
  kjit_error error = {0};
  kjit_status status = open_runtime(&runtime, &error);
  for (size_t i = 0; i < options->words.count && status == KJIT_OK; i++)
    status = file_seal(options, options->words.items[i], sealer, runtime, &error);
  if (status == KJIT_OK)
    status = kjit_sealer_finish(sealer, options->without_texts ? KJIT_SEAL_WITHOUT_TEXTS : 0, &blob, &error);
  if (status == KJIT_OK) status = blob_count(runtime, &blob, &counts, &error);
  if (status == KJIT_OK) status = blob_write(options, sealer, &blob, &error);
  kjit_runtime_destroy(runtime);
  return status == KJIT_OK ? counts_print(options, &counts) : report_failure(options->json, &error, NULL);
}

static int pack_sources(const struct pack_options *options) {
  kjit_sealer *sealer = NULL;
  kjit_error error = {0};
  void *compressor = bundle_compressor_create();
  if (compressor == NULL || kjit_sealer_create(&sealer, bundle_compress, compressor, &error) != KJIT_OK) {
    bundle_compressor_free(compressor);
    return failure("out of memory");
  }
  const int code = pack_with(options, sealer);
  kjit_sealer_destroy(sealer);
  bundle_compressor_free(compressor);
  return code;
}

/* -- Listing ------------------------------------------------------------------------------------------------------ */

static int kernel_add(void *user, const kjit_program_kernel *kernel) {
  json_t *defines = json_array();
  for (size_t i = 0; i < kernel->variant.define_count; i++)
    json_array_append_new(defines, json_pack("[o, o]", json_text(kernel->variant.defines[i].name),
                                             json_text(kernel->variant.defines[i].value)));
  json_array_append_new(user, json_pack("{s:o, s:o, s:s, s:o, s:i, s:b}", "source", json_text(kernel->source), "entry",
                                        json_text(kernel->variant.entry), "arch", kernel->variant.arch, "defines",
                                        defines, "files", (int)kernel->files, "texts", (int)kernel->has_texts));
  return 0;
}

static int kernel_print(void *user, const kjit_program_kernel *kernel) {
  (void)user;
  printf("%-8s  %s of %s, %u files", kernel->variant.arch, kernel->variant.entry, kernel->source, kernel->files);
  for (size_t i = 0; i < kernel->variant.define_count; i++)
    printf(" %s=%s", kernel->variant.defines[i].name, kernel->variant.defines[i].value);
  puts(kernel->has_texts ? "" : " (without texts)");
  return 0;
}

static int program_list(const struct pack_options *options) {
  kjit_runtime *runtime = NULL;
  kjit_program *program = NULL;
  kjit_error error = {0};
  json_t *kernels = json_array();
  kjit_status status = open_runtime(&runtime, &error);
  if (status == KJIT_OK) status = kjit_program_open(runtime, options->words.items[0], NULL, &program, &error);
  if (status == KJIT_OK)
    status = kjit_program_list(program, options->json ? kernel_add : kernel_print, kernels, &error);
  kjit_program_release(program);
  kjit_runtime_destroy(runtime);
  int code;
  if (status != KJIT_OK)
    code = report_failure(options->json, &error, NULL);
  else
    code = options->json ? print_json(json_pack("{s:O}", "kernels", kernels)) : print_text("");
  json_decref(kernels);
  return code;
}

/* -- The command line --------------------------------------------------------------------------------------------- */

static int options_check(const struct pack_options *options) {
  if (options->list) return options->words.count == 1 ? -1 : usage_error("pack --list: one sealed program is expected");
  if (options->words.count == 0) return usage_error("pack: FILE.cu is missing");
  if (options->entries.count == 0) return usage_error("pack: --entry is missing");
  if (options->archs == NULL) return usage_error("pack: --arch is missing");
  if (options->out == NULL) return usage_error("pack: -o is missing");
  if (!bundle_symbol_is_sound(options->symbol))
    return usage_error("--symbol %s: a C identifier is expected", options->symbol);
  const char *stray = entry_stray(options);
  return stray == NULL ? -1 : usage_error("pack: --entry %s: of several sources, FILE.cu:NAME says whose it is", stray);
}

static int pack_run(int argc, char **argv) {
  struct pack_options options = {.symbol = "sealed_program"};
  const struct option table[] = {
      {.kind = OPTION_LIST, .name = "--entry", .target = &options.entries},
      {.kind = OPTION_TEXT, .name = "--arch", .target = &options.archs},
      {.kind = OPTION_TEXT, .name = "-o", .target = &options.out},
      {.kind = OPTION_LIST, .name = "-D", .target = &options.defines},
      {.kind = OPTION_LIST, .name = "-I", .target = &options.include_dirs},
      {.kind = OPTION_LIST, .name = "--option", .target = &options.options},
      {.kind = OPTION_TEXT, .name = "--key", .target = &options.key},
      {.kind = OPTION_TEXT, .name = "--symbol", .target = &options.symbol},
      {.kind = OPTION_FLAG, .name = "--c-source", .target = &options.c_source},
      {.kind = OPTION_FLAG, .name = "--without-texts", .target = &options.without_texts},
      {.kind = OPTION_FLAG, .name = "--list", .target = &options.list},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, &options.words, usage);
  if (code < 0) code = options_check(&options);
  if (code < 0) code = options.list ? program_list(&options) : pack_sources(&options);
  option_list_free(&options.words);
  option_list_free(&options.entries);
  option_list_free(&options.defines);
  option_list_free(&options.include_dirs);
  option_list_free(&options.options);
  return code;
}

const struct command command_pack = {
    .name = "pack", .summary = "sources and all they include in one file that an application ships", .run = pack_run};
