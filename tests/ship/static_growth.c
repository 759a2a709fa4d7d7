/* Links everything that an application that ships a bundle uses: tools/sizes measures what that adds to it. */
#include "support/configs.h"
#include <kjit/kjit.h>

int main(int argc, char **argv) {
  kjit_runtime *runtime;
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_attention_args args = kjit_attention_args_default();
  options.bundle_paths = (const char *const *)&argv[1];
  options.bundle_count = argc > 1 ? 1 : 0;
  if (kjit_runtime_create(&runtime, &options, NULL) != KJIT_OK) return 1;
  const kjit_status status = plain_forward(runtime, NULL, &args, NULL, NULL);
  kjit_runtime_destroy(runtime);
  return status == KJIT_OK ? 0 : 1;
}
