/* Reading a request that record_sources() wrote. Nothing in the files is believed before it is checked, because a
 * manifest may come from a stranger. */
#ifndef KJIT_JIT_RECORD_RECORDED_H
#define KJIT_JIT_RECORD_RECORDED_H

#include "base/arena.h"
#include "jit/cache/file_ops.h"
#include "jit/request/request.h"
#include "jit/source/include_closure.h"

struct recorded {
  struct jit_request request; /* points into what follows; its sources are withheld */
  const struct mem *mem;
  const struct file_ops *ops;
  struct arena arena; /* everything but texts */
  int folder;
  char *file; /* the request's file */
  struct source_set set;
  struct source_file *files;
  size_t file_count;
  const char **names, **options;
  struct jit_part *parts;
  struct source_file *texts; /* after recorded_read_texts() */
  struct source_set text_set;
};

/* Read "<folder>/<digest>.request" and the request's parts. Texts are not read.
 * KJIT_ERR_INVALID_ARG  the path's last part is not such a name
 * KJIT_ERR_NOT_FOUND    a file is not there
 * KJIT_ERR_CORRUPT      a file's content is not what its name says, or not a request
 * KJIT_ERR_UNSUPPORTED  written by a kjit whose keys have another form
 * KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * Finish it in every case. */
kjit_status recorded_open(struct recorded *recorded, const struct mem *mem, const struct file_ops *ops,
                          const char *path, kjit_error *error);

/* Read every source, and see that none of them includes a file that is not recorded: what a source names could
 * otherwise be any file of this machine. `cuda_version` as in struct include_terms. Errors as above, and
 * KJIT_ERR_UNSUPPORTED for such an #include. */
kjit_status recorded_read_texts(struct recorded *recorded, unsigned cuda_version, const struct source_set **out,
                                kjit_error *error);

void recorded_finish(struct recorded *recorded);

#endif
