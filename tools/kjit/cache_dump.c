/* kjit cache show --ptx: what a compile under KJIT_DUMP left of an entry.
 *
 * An entry has machine code and no PTX, and of the sources only their digests; so PTX cannot be made of it again, and
 * is looked for in the dump folder, in which the key's first digits end the folder's name. One thread. */
#include "cache_entries.h"
#include "command.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_DIGITS 12

static int take_key(void *user, const kjit_cache_entry *entry) {
  char *const digits = user;
  memcpy(digits, entry->key, KEY_DIGITS);
  return 1;
}

/* The dump of a key below a folder; false when there is none. */
static bool dump_find(const char *dump, const char digits[KEY_DIGITS + 1], char path[], size_t path_bytes) {
  DIR *const list = opendir(dump);
  bool found = false;
  if (list == NULL) return false;
  for (const struct dirent *entry; !found && (entry = readdir(list)) != NULL;) {
    const size_t bytes = strlen(entry->d_name);
    if (entry->d_name[0] == '.' || bytes < KEY_DIGITS || strcmp(entry->d_name + bytes - KEY_DIGITS, digits) != 0)
      continue;
    found = snprintf(path, path_bytes, "%s/%s/kernel.ptx", dump, entry->d_name) < (int)path_bytes;
  }
  closedir(list);
  return found;
}

int cache_entries_ptx(kjit_runtime *runtime, const char *key) {
  char digits[KEY_DIGITS + 1] = "", path[4096], buffer[65536];
  kjit_error error = {0};
  const char *const dump = getenv("KJIT_DUMP");
  if (kjit_cache_show(runtime, key, take_key, digits, &error) != KJIT_OK) return report_failure(false, &error, NULL);
  if (dump == NULL || *dump == '\0' || !dump_find(dump, digits, path, sizeof path))
    return failure(
        "key %s: its PTX was not kept: compile it under KJIT_DUMP=FOLDER, with KJIT_CACHE_MODE=off if it is in "
        "the cache, and ask with the same KJIT_DUMP",
        digits);
  FILE *const file = fopen(path, "re");
  if (file == NULL) return failure("%s: no PTX was made, as of linked code and of compiled parts", path);
  for (size_t bytes; (bytes = fread(buffer, 1, sizeof buffer, file)) > 0;)
    (void)fwrite(buffer, 1, bytes, stdout);
  fclose(file);
  return print_text("");
}
