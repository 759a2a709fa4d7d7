#include "attention/flash/flash_request.h"

#include "attention/flash/flash_fields.h"
#include "attention/flash/flash_text.h"
#include "base/error.h"

#define MAIN_FILE "flash_forward/flash_forward.cu"

/* Hardware exp2 and division: the softmax needs no more, its result is rounded to 16 bits. */
static const char *const options[] = {"--use_fast_math"};

kjit_status flash_request_sources(struct source_shelf *shelf, const struct source_set **out, kjit_error *error) {
  return source_shelf_get(shelf, MAIN_FILE, out, error);
}

void flash_request_prologue(const kjit_flash_variant *canonical, struct text *out) {
  field_table_defines(&flash_variant_fields, canonical, out);
  text_append(out, "#line 1 \"" MAIN_FILE "\"\n");
}

kjit_status flash_request_init(struct flash_request *request, struct source_shelf *shelf,
                               const kjit_flash_variant *variant, const char *arch, uint32_t flags, kjit_error *error) {
  const kjit_flash_variant canonical = kjit_flash_variant_canonical(variant);
  struct text prologue, label;
  request->request = (struct jit_request){.family = flash_fields.family,
                                          .label = request->label,
                                          .entry = "flash_forward",
                                          .prologue = request->prologue,
                                          .options = options,
                                          .option_count = sizeof options / sizeof *options,
                                          .flags = flags};
  const kjit_status status = flash_request_sources(shelf, &request->request.sources, error);
  if (status != KJIT_OK) return status;
  text_init_fixed(&prologue, request->prologue, sizeof request->prologue);
  flash_request_prologue(&canonical, &prologue);
  text_init_fixed(&label, request->label, sizeof request->label);
  flash_text_print(&canonical, &label);
  if (prologue.failed || label.failed) return error_set(error, KJIT_ERR_INTERNAL, "the config's text is too long");
  return target_parse(&request->request.target, arch, error);
}
