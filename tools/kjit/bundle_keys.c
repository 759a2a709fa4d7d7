/* Signing keys of bundles: reading and writing their files, `kjit bundle keygen` and `kjit bundle sign`.
 *
 * A key file is one line: what kind of key it is, a format number, and 64 hex digits. Buffers that held a secret key
 * are cleared with explicit_bzero(), otherwise the digits would stay on the stack or in a core dump. One thread. */
#include "bundle.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_DIGITS (BUNDLE_KEY_HEX_BYTES - 1)

static const char *const key_heads[] = {
    [BUNDLE_KEY_SECRET] = "kjit-secret-key 1 ",
    [BUNDLE_KEY_PUBLIC] = "kjit-public-key 1 ",
};

static bool is_key(const char *text) {
  return strspn(text, "0123456789abcdef") == KEY_DIGITS && text[KEY_DIGITS] == '\0';
}

kjit_status bundle_key_read(const char *text, enum bundle_key_kind kind, char hex[BUNDLE_KEY_HEX_BYTES],
                            kjit_error *error) {
  char line[128] = "";
  const size_t head = strlen(key_heads[kind]);
  if (kind == BUNDLE_KEY_PUBLIC && is_key(text)) {
    memcpy(hex, text, BUNDLE_KEY_HEX_BYTES);
    return KJIT_OK;
  }
  FILE *stream = fopen(text, "r");
  if (stream == NULL) return error_say(error, KJIT_ERR_IO, "%s: %s", text, strerror(errno));
  const bool has_line = fgets(line, sizeof line, stream) != NULL;
  fclose(stream);
  line[strcspn(line, "\r\n")] = '\0';
  if (!has_line || strncmp(line, key_heads[kind], head) != 0 || !is_key(line + head))
    return error_say(error, KJIT_ERR_PARSE, "%s: a line \"%s\" and %d hex digits is expected", text, key_heads[kind],
                     KEY_DIGITS);
  memcpy(hex, line + head, BUNDLE_KEY_HEX_BYTES);
  explicit_bzero(line, sizeof line);
  return KJIT_OK;
}

const char **bundle_keys_read(const struct option_list *keys, kjit_error *error) {
  const size_t pointers = (keys->count + 1) * sizeof(char *);
  char *memory = calloc(1, pointers + keys->count * BUNDLE_KEY_HEX_BYTES);
  const char **read = (const char **)(void *)memory;
  if (memory == NULL) {
    error_say(error, KJIT_ERR_NO_MEMORY, "out of memory");
    return NULL;
  }
  for (size_t i = 0; i < keys->count; i++) {
    char *hex = memory + pointers + i * BUNDLE_KEY_HEX_BYTES;
    if (bundle_key_read(keys->items[i], BUNDLE_KEY_PUBLIC, hex, error) != KJIT_OK) {
      free(memory);
      return NULL;
    }
    read[i] = hex;
  }
  return read;
}

/* Write one key as the only line of the file `<name><suffix>`. */
static kjit_status key_write(const char *name, const char *suffix, unsigned mode, enum bundle_key_kind kind,
                             const char *hex, kjit_error *error) {
  char path[4096], line[128];
  if (snprintf(path, sizeof path, "%s%s", name, suffix) >= (int)sizeof path)
    return error_say(error, KJIT_ERR_INVALID_ARG, "%.80s…: the name is too long", name);
  const int bytes = snprintf(line, sizeof line, "%s%s\n", key_heads[kind], hex);
  const struct output_piece piece = {line, (size_t)bytes};
  const kjit_status status = output_file_write(path, mode, &piece, 1, error);
  explicit_bzero(line, sizeof line);
  return status;
}

int bundle_keygen(const struct bundle_options *options) {
  const char *name = options->words.items[1];
  char secret[BUNDLE_KEY_HEX_BYTES], public[BUNDLE_KEY_HEX_BYTES];
  kjit_error error = {0};
  kjit_status status = kjit_bundle_keygen(secret, public, &error);
  if (status == KJIT_OK) status = key_write(name, ".key", 0600, BUNDLE_KEY_SECRET, secret, &error);
  if (status == KJIT_OK) status = key_write(name, ".pub", 0644, BUNDLE_KEY_PUBLIC, public, &error);
  explicit_bzero(secret, sizeof secret);
  if (status != KJIT_OK) return report_failure(options->json, &error, NULL);
  if (options->json) return print_json(json_pack("{s:s}", "public_key", public));
  printf("%s.key is the secret, %s.pub the public key: %s\n", name, name, public);
  return print_text("");
}

/* Sign an open bundle and write body and signature to `out`. The body is read again from the file because the library
 * gives no access to its mapping; kjit_bundle_open() has already checked that the file holds that many bytes. */
static kjit_status file_sign(kjit_bundle *bundle, const char *path, const char *out, const char *secret,
                             kjit_error *error) {
  unsigned char signature[KJIT_BUNDLE_SIGNATURE_BYTES];
  kjit_bundle_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_bundle_sign(bundle, secret, signature, error);
  if (status == KJIT_OK) status = kjit_bundle_get_info(bundle, &info, error);
  if (status != KJIT_OK) return status;
  unsigned char *body = malloc(info.body_bytes);
  FILE *stream = body != NULL ? fopen(path, "rb") : NULL;
  if (stream == NULL || fread(body, info.body_bytes, 1, stream) != 1)
    status = error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
  if (stream != NULL) fclose(stream);
  const struct output_piece pieces[] = {{body, info.body_bytes}, {signature, sizeof signature}};
  if (status == KJIT_OK) status = output_file_write(out, 0644, pieces, 2, error);
  free(body);
  return status;
}

int bundle_sign(const struct bundle_options *options) {
  const char *path = options->words.items[1];
  char secret[BUNDLE_KEY_HEX_BYTES];
  kjit_error error = {0};
  kjit_bundle *bundle = NULL;
  if (options->keys.count != 1) return usage_error("bundle sign: one --key with the secret key's file is needed");
  kjit_status status = bundle_key_read(options->keys.items[0], BUNDLE_KEY_SECRET, secret, &error);
  if (status == KJIT_OK) status = kjit_bundle_open(&bundle, path, NULL, NULL, 0, &error);
  if (status == KJIT_OK) status = file_sign(bundle, path, options->out != NULL ? options->out : path, secret, &error);
  kjit_bundle_close(bundle);
  explicit_bzero(secret, sizeof secret);
  if (status != KJIT_OK) return report_failure(options->json, &error, NULL);
  return bundle_inspect(options);
}
