/* kjit compile: one kernel, from a config, from an attention problem, or from a .cu file. */
#include "command.h"

#include "attention_text.h"
#include "custom_source.h"
#include "output_file.h"
#include "request_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kjit compile --flash \"SHORT FORM\" --arch ARCH [OPTION]...\n"
    "       kjit compile --attention \"KEY=VALUE,...\" --arch ARCH [OPTION]...\n"
    "       kjit compile --family FAMILY \"FIELD=VALUE,...\" --arch ARCH [OPTION]...\n"
    "       kjit compile FOLDER/DIGEST.request --arch ARCH [OPTION]...\n"
    "       kjit compile FILE.cu --entry NAME --arch ARCH [-D NAME[=VALUE]]... [-I DIR]... [OPTION]...\n"
    "                    [-- NVRTC-OPTION...]\n\n"
    "Compiles one kernel, or finds it in the cache. Needs no GPU.\n\n"
    "  --flash TEXT      a config: \"(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax\";\n"
    "                    behind it what its kernel computes: \" causal=1,grouped=1,head_dim=120,head_dim_v=128\"\n"
    "  --family FAMILY   a family file, or one of kjit's own, such as attention_sm90; the config stands as a word:\n"
    "                    \"threads=256,vec=8\"\n"
    "  --attention TEXT  a problem, for which the config is chosen: \"dtype=bf16,head_dim=128\"\n"
    "  --entry NAME      the extern \"C\" __global__ function of FILE.cu\n"
    "  -D NAME[=VALUE]   #define in front of FILE.cu\n"
    "  -I DIR            searched for headers, after FILE.cu's own folder and before the toolkit's\n"
    "  -- OPTION...      for the compiler: --maxrregcount=64, -lineinfo, --std=c++20, ...\n"
    "  --arch ARCH       sm_80, sm_90, sm_90a, ...\n"
    "  -o FILE           write the cubin\n"
    "  --keep-unused     leave variables in FILE.cu's cubin that nothing uses\n"
    "  --show-source     print the text that would be compiled; without --json nothing is compiled\n"
    "  --time            where the compile's time went; nothing is known of a kernel that is in the cache\n"
    "  --show-key        print the key and what it covers\n"
    "  --json            one JSON object on stdout\n\n"
    "Keys of --attention:\n" ATTENTION_TEXT_HELP;

struct compile_options {
  const char *flash, *attention, *family, *entry, *arch, *output;
  struct option_list words, defines, include_dirs;
  bool show_source, show_key, time, json, keep_unused;
};

/* What is asked for, whichever way it was said. */
struct subject {
  bool is_custom;
  const char *recorded; /* a request that was recorded with its sources; NULL: none */
  struct family_files files;
  kjit_config config; /* canonical; where it is not a caller's own source */
  struct custom_source custom;
};

static bool is_recorded(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot != NULL && strcmp(dot, ".request") == 0;
}

static int options_check(const struct compile_options *options) {
  const bool is_file = options->words.count > 0 && options->family == NULL;
  const int subjects = is_file + (options->family != NULL) + (options->flash != NULL) + (options->attention != NULL);
  if (subjects != 1) return usage_error("compile: exactly one of --flash, --attention, --family and FILE.cu is needed");
  if (options->arch == NULL) return usage_error("compile: --arch is needed");
  if (options->family != NULL && options->words.count > 1)
    return usage_error("compile: --family takes one config; quote it when it has blanks");
  for (size_t i = 1; i < options->words.count; i++)
    if (options->words.items[i][0] != '-')
      return usage_error("compile: one FILE.cu; behind it and \"--\" stand the compiler's options, each with a dash");
  if (is_file && is_recorded(options->words.items[0])) {
    if (options->words.count > 1 || options->entry != NULL || options->defines.count + options->include_dirs.count > 0)
      return usage_error("compile: a recorded request has its own entry, defines, folders and options");
    if (options->show_source) return usage_error("compile: --source: the sources lie beside the recorded request");
    return -1;
  }
  if (is_file && options->entry == NULL) return usage_error("compile: FILE.cu needs --entry NAME");
  if (!is_file && (options->entry != NULL || options->defines.count > 0 || options->include_dirs.count > 0))
    return usage_error("compile: --entry, -D and -I belong to FILE.cu");
  return -1;
}

/* Without a word every field has its default. */
static kjit_status family_read(const struct compile_options *options, struct subject *subject, kjit_error *error) {
  const char *text = options->words.count > 0 ? options->words.items[0] : "";
  const kjit_family *family;
  kjit_status status = family_files_find(&subject->files, options->family, NULL, &family, error);
  for (size_t i = 0; status == KJIT_OK && kjit_family_warning(family, i) != NULL; i++)
    fprintf(stderr, "kjit: warning: %s\n", kjit_family_warning(family, i));
  if (status == KJIT_OK) status = kjit_config_parse(family, text, &subject->config, error);
  return status == KJIT_OK ? request_check(&subject->config, options->arch, error) : status;
}

static kjit_status config_read(kjit_runtime *runtime, const struct compile_options *options, struct subject *subject,
                               kjit_error *error) {
  kjit_config *config = &subject->config;
  struct trial_problem problem;
  kjit_status status;
  if (options->family != NULL) return family_read(options, subject, error);
  if (options->flash != NULL) {
    status = kjit_config_parse(kjit_family_find("flash_forward"), options->flash, config, error);
    return status == KJIT_OK ? request_check(config, options->arch, error) : status;
  }
  status = attention_text_parse(options->attention, &problem, error);
  if (status == KJIT_OK && problem.pass == PASS_BACKWARD)
    return error_say(error, KJIT_ERR_PARSE,
                     "--attention: pass=backward stands for several kernels: name one by --family, or use a manifest");
  return status == KJIT_OK ? request_choose(runtime, &problem.asked, options->arch, config, error) : status;
}

static kjit_status subject_read(kjit_runtime *runtime, const struct compile_options *options, struct subject *subject,
                                kjit_error *error) {
  subject->is_custom = options->words.count > 0 && options->family == NULL;
  if (!subject->is_custom) return config_read(runtime, options, subject, error);
  if (is_recorded(options->words.items[0])) {
    subject->recorded = options->words.items[0];
    return KJIT_OK;
  }
  return custom_source_read(&subject->custom, options->words.items[0], &options->defines, &options->include_dirs,
                            error);
}

static kjit_build_request custom_request(const struct subject *subject, const struct compile_options *options) {
  kjit_build_request request = subject->custom.request;
  request.entry = options->entry;
  request.arch = options->arch;
  request.options = options->words.items + 1;
  request.option_count = options->words.count - 1;
  if (options->keep_unused) request.flags |= KJIT_BUILD_KEEP_UNUSED;
  return request;
}

static kjit_status subject_build(kjit_runtime *runtime, const struct subject *subject,
                                 const struct compile_options *options, kjit_artifact **artifact, kjit_error *error) {
  if (subject->recorded != NULL)
    return kjit_recorded_build(runtime, subject->recorded, options->arch, 0, artifact, error);
  if (!subject->is_custom) return kjit_config_build(runtime, &subject->config, options->arch, 0, artifact, error);
  const kjit_build_request request = custom_request(subject, options);
  return kjit_build(runtime, &request, artifact, error);
}

static kjit_status subject_text(kjit_runtime *runtime, const struct subject *subject,
                                const struct compile_options *options, char **text, kjit_error *error) {
  if (!subject->is_custom) return kjit_config_source(runtime, &subject->config, text, error);
  const kjit_build_request request = custom_request(subject, options);
  return kjit_build_source(runtime, &request, text, error);
}

/* A device or a pipe takes the bytes as they come, so that -o /dev/stdout works; a file appears whole or not at all. */
static kjit_status cubin_write(const char *path, const kjit_artifact_info *info, kjit_error *error) {
  const struct output_piece piece = {info->cubin, info->cubin_bytes};
  if (!output_file_is_stream(path)) return output_file_write(path, 0666, &piece, 1, error);
  FILE *stream = fopen(path, "wb");
  if (stream == NULL) return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
  const bool written = fwrite(info->cubin, 1, info->cubin_bytes, stream) == info->cubin_bytes;
  const int cause = errno;
  if (fclose(stream) == 0 && written) return KJIT_OK;
  return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(written ? errno : cause));
}

/* Dynamic shared memory is the launch's business: known for a family, not for a caller's own kernel. */
static uint32_t shared_bytes(const struct subject *subject, const kjit_artifact_info *info) {
  return info->shared_bytes + (subject->is_custom ? 0 : kjit_config_geometry(&subject->config).shared_bytes);
}

static uint32_t threads(const struct subject *subject, const kjit_artifact_info *info) {
  const kjit_geometry geometry = subject->is_custom ? (kjit_geometry){0} : kjit_config_geometry(&subject->config);
  return subject->is_custom ? info->max_threads : geometry.threads[0] * geometry.threads[1] * geometry.threads[2];
}

static void label_print(const struct subject *subject, char text[KJIT_CONFIG_TEXT_MAX]) {
  if (subject->recorded != NULL)
    snprintf(text, KJIT_CONFIG_TEXT_MAX, "%s", subject->recorded);
  else if (subject->is_custom)
    snprintf(text, KJIT_CONFIG_TEXT_MAX, "%s", subject->custom.request.source.name);
  else
    request_print_config(&subject->config, text);
}

static json_t *result_json(const struct subject *subject, const kjit_artifact_info *info) {
  char label[KJIT_CONFIG_TEXT_MAX];
  label_print(subject, label);
  return json_pack(
      "{s:s, s:s, s:o, s:s, s:o, s:s, s:I, s:f, s:i, s:i, s:i, s:i, s:i, s:o}", "key", info->key, "family",
      subject->is_custom ? "custom" : kjit_family_name(subject->config.family), "label", json_text(label), "arch",
      info->arch, "entry", json_text(info->entry), "source", kjit_origin_name((kjit_origin)info->origin), "cubin_bytes",
      (json_int_t)info->cubin_bytes, "compile_ms", info->compile_ms, "registers", (int)info->registers, "spill_bytes",
      (int)info->spill_bytes, "local_bytes", (int)info->local_bytes, "shared_bytes", (int)shared_bytes(subject, info),
      "threads", (int)threads(subject, info), "log", json_text(info->log));
}

static int print_summary(const struct subject *subject, const kjit_artifact_info *info) {
  char label[KJIT_CONFIG_TEXT_MAX];
  label_print(subject, label);
  printf("kernel     %s of %s\narch       %s\n", info->entry, label, info->arch);
  printf("source     %s (compiled in %.0f ms)\n", kjit_origin_name((kjit_origin)info->origin), info->compile_ms);
  printf("cubin      %zu bytes\n", info->cubin_bytes);
  printf("registers  %u per thread, %u bytes spilled\n", info->registers, info->spill_bytes);
  printf("shared     %u bytes per block%s\n", shared_bytes(subject, info), subject->is_custom ? ", static" : "");
  if (threads(subject, info) > 0) printf("threads    %u per block\n", threads(subject, info));
  printf("key        %s\n", info->key);
  if (info->log[0] != '\0') fprintf(stderr, "%s%s", info->log, info->log[strlen(info->log) - 1] == '\n' ? "" : "\n");
  return print_text("");
}

/* Where the time went, as words or into an object; all zero for a kernel that was found. */
static void times_print(const kjit_artifact *artifact, json_t *object) {
  kjit_phases phases = {.struct_size = sizeof phases};
  if (kjit_artifact_get_phases(artifact, &phases, NULL) != KJIT_OK) return;
  const struct {
    const char *name, *key;
    double ms;
  } rows[] = {{"includes", "includes_ms", phases.includes_ms},
              {"compile", "compile_ms", phases.compile_ms},
              {"  front end", "front_end_ms", phases.front_end_ms},
              {"  optimizer", "optimizer_ms", phases.optimizer_ms},
              {"  ptxas", "ptxas_ms", phases.ptxas_ms},
              {"  link", "link_ms", phases.link_ms},
              {"publish", "publish_ms", phases.publish_ms}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (object != NULL)
      json_object_set_new(object, rows[i].key, json_real(rows[i].ms));
    else
      printf("%-11s %8.1f ms\n", rows[i].name, rows[i].ms);
}

static int print_result(kjit_runtime *runtime, const struct subject *subject, const struct compile_options *options,
                        const kjit_artifact *artifact, const kjit_artifact_info *info) {
  if (!options->json && options->time) times_print(artifact, NULL);
  if (!options->json && options->show_key)
    return printf("%s\n", info->key) < 0 ? EXIT_FAILED : print_text(info->key_text);
  if (!options->json) return print_summary(subject, info);
  json_t *object = result_json(subject, info);
  json_t *const times = options->time ? json_object() : NULL;
  if (times != NULL) times_print(artifact, times);
  if (times != NULL) json_object_set_new(object, "times", times);
  if (options->show_key) json_object_set_new(object, "key_text", json_text(info->key_text));
  char *text = NULL;
  kjit_error error = {0};
  if (options->show_source && subject_text(runtime, subject, options, &text, &error) == KJIT_OK)
    json_object_set_new(object, "source_text", json_text(text));
  kjit_text_free(runtime, text);
  return print_json(object);
}

/* What the compiler said, also where it said no. */
static const char *artifact_log(const kjit_artifact *artifact) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  return artifact != NULL && kjit_artifact_get_info(artifact, &info, NULL) == KJIT_OK ? info.log : NULL;
}

static int compile_subject(kjit_runtime *runtime, const struct subject *subject,
                           const struct compile_options *options) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info, .log = ""};
  kjit_error error = {0};
  kjit_status status = subject_build(runtime, subject, options, &artifact, &error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, &error);
  if (status == KJIT_OK && options->output != NULL) status = cubin_write(options->output, &info, &error);
  const int code = status == KJIT_OK ? print_result(runtime, subject, options, artifact, &info)
                                     : report_failure(options->json, &error, artifact_log(artifact));
  kjit_artifact_release(artifact);
  return code;
}

static int show_source(kjit_runtime *runtime, const struct subject *subject, const struct compile_options *options) {
  char *text = NULL;
  kjit_error error = {0};
  const kjit_status status = subject_text(runtime, subject, options, &text, &error);
  const int code = status == KJIT_OK ? print_text(text) : report_error(&error);
  kjit_text_free(runtime, text);
  return code;
}

static int compile_with(const struct compile_options *options) {
  struct subject subject = {0};
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  int code;
  if (options->time) (void)setenv("KJIT_TIME", "on", 1); /* read when the runtime is made */
  if (open_runtime(&runtime, &error) != KJIT_OK || subject_read(runtime, options, &subject, &error) != KJIT_OK)
    code = report_failure(options->json, &error, NULL);
  else if (options->show_source && !options->json)
    code = show_source(runtime, &subject, options);
  else
    code = compile_subject(runtime, &subject, options);
  kjit_runtime_destroy(runtime);
  custom_source_free(&subject.custom);
  family_files_close(&subject.files);
  return code;
}

static int compile_run(int argc, char **argv) {
  struct compile_options options = {0};
  const struct option table[] = {
      {.kind = OPTION_TEXT, .name = "--flash", .target = &options.flash},
      {.kind = OPTION_TEXT, .name = "--attention", .target = &options.attention},
      {.kind = OPTION_TEXT, .name = "--family", .target = &options.family},
      {.kind = OPTION_TEXT, .name = "--entry", .target = &options.entry},
      {.kind = OPTION_TEXT, .name = "--arch", .target = &options.arch},
      {.kind = OPTION_TEXT, .name = "-o", .target = &options.output},
      {.kind = OPTION_LIST, .name = "-D", .target = &options.defines},
      {.kind = OPTION_LIST, .name = "-I", .target = &options.include_dirs},
      {.kind = OPTION_FLAG, .name = "--show-source", .target = &options.show_source},
      {.kind = OPTION_FLAG, .name = "--keep-unused", .target = &options.keep_unused},
      {.kind = OPTION_FLAG, .name = "--time", .target = &options.time},
      {.kind = OPTION_FLAG, .name = "--show-key", .target = &options.show_key},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, &options.words, usage);
  if (code < 0) code = options_check(&options);
  if (code < 0) code = compile_with(&options);
  option_list_free(&options.words);
  option_list_free(&options.defines);
  option_list_free(&options.include_dirs);
  return code;
}

const struct command command_compile = {
    .name = "compile", .summary = "compile one kernel, or find it in the cache", .run = compile_run};
