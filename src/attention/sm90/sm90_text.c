#include "attention/sm90/sm90_text.h"

#include "attention/sm90/sm90_fields.h"
#include "family/pair_form.h"

kjit_status sm90_text_parse(const char *text, kjit_attention_sm90_config *config, kjit_error *error) {
  return pair_form_parse(&sm90_fields, text, config, error);
}

void sm90_text_print(const kjit_attention_sm90_config *config, struct text *out) {
  pair_form_print(&sm90_fields, config, out);
}
