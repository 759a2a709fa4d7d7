/* The kernels of a model that is served, from a manifest line such as "heads=32/8 head_dim=128 page=16 dtype=bf16". */
#ifndef KJIT_TOOLS_SERVING_SPEC_H
#define KJIT_TOOLS_SERVING_SPEC_H

#include <kjit/kjit.h>

/* Read a model: `dtype` and `head_dim` must be given; besides `heads` (query/key heads, one number for both),
 * `head_dim_v`, `page` (0: no pages) and `softcap` (0 or 1). Blanks or commas stand between. KJIT_ERR_PARSE has the
 * column. */
kjit_status serving_spec_parse(const char *text, kjit_serving_model *out, kjit_error *error);

#endif
