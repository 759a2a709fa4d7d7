/* Manifests: text, one request a line.
 *
 *   # comment
 *   flash_forward sm_80,sm_90 (FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles
 *   attention sm_90a dtype=bf16,head_dim=128
 *   serving sm_90a heads=32/8 head_dim=128 page=16 dtype=bf16
 *   kernels/softmax.yaml sm_90 threads=256,vec=8
 *
 * A first word with a dot or a slash is the path of a user's family file, relative to the manifest's folder.
 *
 * `error` is never NULL here. */
#ifndef KJIT_TOOLS_MANIFEST_H
#define KJIT_TOOLS_MANIFEST_H

#include "request_list.h"

/* Longest line, without its newline: several times the longest request with every architecture there is. */
#define MANIFEST_LINE_MAX 4096

/* Append the requests of one line; a blank line or a comment has none. KJIT_ERR_PARSE gives the column, from 1. */
kjit_status manifest_parse_line(const char *line, struct request_list *list, kjit_error *error);

/* Append the requests of a file, "-" for standard input. Errors begin with "FILE:LINE: ". `archs` (NULL: each line's
 * own) stand in place of those that the lines name; what one of them cannot run is then counted in list->left_out. */
kjit_status manifest_read(const char *path, const char *archs, struct request_list *list, kjit_error *error);

#endif
