#include "attention/sm90/sm90_request.h"

#include "attention/sm90/sm90_fields.h"
#include "attention/sm90/sm90_rules.h"
#include "attention/sm90/sm90_text.h"
#include "base/error.h"

#define MAIN_FILE "attention_sm90/attention_sm90.cu"

/* Hardware exp2 and division: the softmax needs no more, its result is rounded to 16 bits. */
static const char *const options[] = {"--use_fast_math"};

kjit_status sm90_request_sources(struct source_shelf *shelf, const struct source_set **out, kjit_error *error) {
  return source_shelf_get(shelf, MAIN_FILE, out, error);
}

void sm90_request_prologue(const kjit_attention_sm90_config *canonical, struct text *out) {
  field_table_defines(&sm90_fields, canonical, out);
  text_append(out, "#line 1 \"" MAIN_FILE "\"\n");
}

kjit_status sm90_request_init(struct sm90_request *request, struct source_shelf *shelf,
                              const kjit_attention_sm90_config *config, uint32_t flags, kjit_error *error) {
  const kjit_attention_sm90_config canonical = kjit_attention_sm90_config_canonical(config);
  struct text prologue, label;
  request->request = (struct jit_request){.family = sm90_fields.family,
                                          .label = request->label,
                                          .entry = "attention_sm90",
                                          .prologue = request->prologue,
                                          .options = options,
                                          .option_count = sizeof options / sizeof *options,
                                          .flags = flags};
  const kjit_status status = sm90_request_sources(shelf, &request->request.sources, error);
  if (status != KJIT_OK) return status;
  text_init_fixed(&prologue, request->prologue, sizeof request->prologue);
  sm90_request_prologue(&canonical, &prologue);
  text_init_fixed(&label, request->label, sizeof request->label);
  sm90_text_print(&canonical, &label);
  if (prologue.failed || label.failed) return error_set(error, KJIT_ERR_INTERNAL, "the config's text is too long");
  return target_parse(&request->request.target, SM90_ARCH, error);
}
