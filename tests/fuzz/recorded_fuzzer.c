/* Any bytes as a recorded request, under the name that their digest gives them and beside the sources that corpus files
 * name: refused on one line, or a request whose key is the recorded text byte for byte, and whose sources are read or
 * refused on one line. A folder of its own is made once and its files are written over. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/bounded_memory.h"
#include "fuzz/require.h"
#include "jit/key/key.h"
#include "jit/record/record_sources.h"
#include "jit/record/recorded.h"
#include "support/temp_folder.h"

#define HEX_BYTES (DIGEST_HEX_BYTES - 1)

static struct temp_folder folder;

static void write_named(const char *suffix, const void *data, size_t bytes, char path[TEMP_PATH_BYTES]) {
  struct digest digest;
  char name[RECORDED_NAME_BYTES];
  digest_of(&digest, data, bytes);
  digest_to_hex(&digest, name);
  strcat(name, suffix);
  temp_folder_path(&folder, name, path);
  FILE *file = fopen(path, "wb");
  require(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

static void remove_folder(void) {
  temp_folder_remove(&folder);
}

/* The sources whose digests the corpus files have: one that is right, one that includes a file of the machine, and one
 * with a NUL byte. */
static void begin(void) {
  static const char *const sources[] = {"extern \"C\" __global__ void k() {}\n", "#include \"/etc/hostname\"\n"};
  static bool begun;
  char path[TEMP_PATH_BYTES];
  if (begun) return;
  begun = true;
  require(temp_folder_create(&folder) == 0);
  atexit(remove_folder);
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
    write_named("", sources[i], strlen(sources[i]), path);
  write_named("", "int x;\0int y;\n", 14, path);
}

static void check_line(kjit_status status, const kjit_error *error) {
  require((int32_t)status == error->status);
  require(status == KJIT_OK || (error->message[0] && !strchr(error->message, '\n')));
}

static void check_request(struct recorded *recorded, const struct mem *mem, const uint8_t *data, size_t size) {
  const struct source_set *sources = NULL;
  struct key key;
  kjit_error error = {0};
  require(key_make(&key, mem, &recorded->request, NULL, NULL) == KJIT_OK);
  require(key.request_bytes < size && !memcmp(data + size - key.request_bytes, key.text.data, key.request_bytes));
  key_finish(&key);
  if (!recorded->request.sources->withheld) return;
  const kjit_status status = recorded_read_texts(recorded, 13000, &sources, &error);
  check_line(status, &error);
  if (status == KJIT_OK) input_is_taken();
  for (size_t i = 0; status == KJIT_OK && i < sources->count; i++) {
    struct digest digest;
    digest_of(&digest, sources->files[i].text, sources->files[i].bytes);
    require(digest_equal(&digest, &sources->files[i].digest));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct recorded recorded;
  struct mem mem;
  kjit_error error = {0};
  char path[TEMP_PATH_BYTES];
  begin();
  require(mem_init(&mem, &bounded_memory));
  write_named(RECORDED_SUFFIX, data, size, path);
  const kjit_status status = recorded_open(&recorded, &mem, file_ops_system(), path, &error);
  check_line(status, &error);
  if (status == KJIT_OK) check_request(&recorded, &mem, data, size);
  recorded_finish(&recorded);
  require(unlink(path) == 0);
  return 0;
}
