/* Any text as one line of a manifest: it is refused on one line of at most the error's size, or it gives requests that
 * pass their family's rules, or name the file of one that was recorded. */
#include <stdint.h>
#include <string.h>

#include "fuzz/require.h"
#include "manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_requests(const struct request_list *list) {
  for (size_t i = 0; i < list->count; i++) {
    const struct kernel_request *request = &list->items[i];
    if (request->recorded)
      require(request->label != NULL && request->arch[0] != '\0');
    else
      require(kjit_config_check(&request->config, request->arch, NULL) == KJIT_OK);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char line[MANIFEST_LINE_MAX + 1];
  struct request_list list = {0};
  kjit_error error = {0};
  const size_t length = size < MANIFEST_LINE_MAX ? size : MANIFEST_LINE_MAX;
  memcpy(line, data, length);
  line[length] = '\0';
  const kjit_status status = manifest_parse_line(line, &list, &error);
  require((int32_t)status == error.status);
  if (status != KJIT_OK) require(error.message[0] != '\0' && strchr(error.message, '\n') == NULL);
  if (list.count) input_is_taken();
  check_requests(&list);
  request_list_free(&list);
  return 0;
}
