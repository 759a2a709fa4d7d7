/* The identity of an NVRTC build, which is part of every key: "nvrtc-" and the build-ids of the library and of its
 * builtins. A library without a build-id is identified by a digest of its file. The file is mapped and read, not opened
 * as a library. Any thread. */
#include "jit/toolkit/nvrtc_identity.h"

#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/files/elf_view.h"

/* The largest file that is read: libnvrtc has 110 MB, and hashing ten times as much would take seconds. */
#define LIBRARY_LIMIT ((size_t)1 << 30)

/* Build-ids have 8 (fast), 16 (md5, uuid) or 20 bytes (sha1). A shorter one would not tell builds apart. */
#define BUILD_ID_LEAST 8
#define BUILD_ID_MOST  20

/* "file-" and 40 digits: 160 bits of the digest, as many as a build-id has. */
#define ID_BYTES 48

static void write_hex(char *out, const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void read_id(char id[ID_BYTES], const struct file_map *map) {
  struct elf_view elf;
  struct elf_bytes build_id = {0};
  if (elf_view_open(&elf, map->data, map->bytes)) (void)elf_view_build_id(&elf, &build_id);
  if (build_id.bytes >= BUILD_ID_LEAST && build_id.bytes <= BUILD_ID_MOST) {
    write_hex(id, build_id.data, build_id.bytes);
    return;
  }
  struct digest digest;
  digest_of(&digest, map->data, map->bytes);
  memcpy(id, "file-", 5);
  write_hex(id + 5, digest.bytes, BUILD_ID_MOST);
}

static kjit_status read_file_id(char id[ID_BYTES], struct file_identity *file, const char *path, kjit_error *error) {
  struct file_map map;
  kjit_error reason = {0};
  if (file_map_open(&map, path, LIBRARY_LIMIT, &reason) != KJIT_OK) {
    return error_set_cause(error, KJIT_ERR_NO_NVRTC, (kjit_cause_domain)reason.cause_domain, reason.cause,
                           "NVRTC's identity cannot be read: %s", reason.message);
  }
  read_id(id, &map);
  *file = map.identity;
  file_map_close(&map);
  return KJIT_OK;
}

kjit_status nvrtc_read_identity(struct nvrtc_place *place, kjit_error *error) {
  char library[ID_BYTES], builtins[ID_BYTES] = "";
  struct file_identity unused;
  kjit_status status = read_file_id(library, &place->file, place->library, error);
  if (status == KJIT_OK && place->builtins[0]) status = read_file_id(builtins, &unused, place->builtins, error);
  if (status != KJIT_OK) return status;
  (void)snprintf(place->identity, sizeof place->identity, "nvrtc-%s%s%s", library, *builtins ? "-" : "", builtins);
  return KJIT_OK;
}

kjit_status library_identify(const char *path, const char *prefix, char identity[NVRTC_IDENTITY_BYTES],
                             kjit_error *error) {
  char id[ID_BYTES];
  struct file_identity unused;
  const kjit_status status = read_file_id(id, &unused, path, error);
  if (status == KJIT_OK) (void)snprintf(identity, NVRTC_IDENTITY_BYTES, "%s%s", prefix, id);
  return status;
}
