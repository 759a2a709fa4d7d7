/* The layout of a bundle, version 1. The written grammar is in cache/README.md.
 *
 *   bundle = head | group... | record... | dictionary... | payload... | [signature]
 *
 * There is one layout: groups are sorted by architecture, records by request; dictionaries stand in the order of their
 * groups, payloads in that of their records, each begins where the one before it ends. So nothing can overlap, and
 * equal kernels give equal bytes. Integers are little-endian; what is not used is zero and checked to be. */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_FORMAT_H
#define KJIT_JIT_BUNDLE_BUNDLE_FORMAT_H

#include <stdbool.h>

#include "base/digest.h"
#include "jit/cache/entry.h"

/* The first byte is above 127 and line ends follow, so that a transfer as text would change the magic and be noticed.
 */
#define BUNDLE_MAGIC       "\x89KJB\r\n\x1a\n"
#define BUNDLE_MAGIC_BYTES 8
#define BUNDLE_VERSION     1

/* Sanity bound: far beyond all kernels that anybody ships in one file, so a larger size is damage. */
#define BUNDLE_MAX_BYTES ((uint64_t)4 << 30)
/* As many kernels as a manifest may name, rounded up; their records take 96 MiB. */
#define BUNDLE_MAX_RECORDS ((uint32_t)1 << 20)
/* A group is an architecture, and there are some thirty. */
#define BUNDLE_MAX_GROUPS 256
/* A dictionary is unpacked whole before the first kernel of its architecture is: about a millisecond. */
#define BUNDLE_MAX_DICTIONARY_BYTES ((uint32_t)1 << 20)
#define BUNDLE_ARCH_BYTES           16

enum bundle_head_offset {
  BUNDLE_AT_VERSION = 8,       /* u32 */
  BUNDLE_AT_HEAD_BYTES = 12,   /* u32 */
  BUNDLE_AT_BODY_BYTES = 16,   /* u64: the file without its signature */
  BUNDLE_AT_GROUPS = 24,       /* u32: number of them */
  BUNDLE_AT_RECORDS = 28,      /* u32: number of them */
  BUNDLE_AT_TABLE_DIGEST = 32, /* BLAKE2b-256 of all groups and records */
  BUNDLE_AT_HEAD_RESERVED = 64,
  BUNDLE_HEAD_BYTES = 96
};

/* Kernels of one architecture share a dictionary, because they are much alike. A packed size of 0 means that they have
 * none. */
enum bundle_group_offset {
  GROUP_AT_ARCH = 0,    /* NUL-padded */
  GROUP_AT_DIGEST = 16, /* BLAKE2b-256 of the packed dictionary; zeros when there is none */
  GROUP_AT_OFFSET = 48, /* u64 */
  GROUP_AT_PACKED = 56, /* u32 */
  GROUP_AT_BYTES = 60,  /* u32: unpacked */
  BUNDLE_GROUP_BYTES = 64
};

enum bundle_record_offset {
  RECORD_AT_REQUEST = 0, /* digest of the request's part of the key */
  RECORD_AT_DIGEST = 32, /* BLAKE2b-256 of the payload, packed */
  RECORD_AT_OFFSET = 64, /* u64 */
  RECORD_AT_PACKED = 72, /* u32 */
  RECORD_AT_BYTES = 76,  /* u32: of the entry inside */
  RECORD_AT_GROUP = 80,  /* u32: index */
  RECORD_AT_RESERVED = 84,
  BUNDLE_RECORD_BYTES = 96
};

/* Ed25519 over BUNDLE_SIGNED_PREFIX and the head; the head has the table's digest, and the table has all others. */
#define BUNDLE_SIGNED_PREFIX         "kjit bundle signature 1\n"
#define BUNDLE_SIGNATURE_MAGIC       "KJBSIGN1"
#define BUNDLE_SIGNATURE_MAGIC_BYTES 8
enum bundle_signature_offset {
  SIGNATURE_AT_KEY = 8, /* public, 32 bytes */
  SIGNATURE_AT_SIGNATURE = 40,
  BUNDLE_SIGNATURE_BYTES = 104
};

struct bundle_group {
  char arch[BUNDLE_ARCH_BYTES]; /* NUL-terminated */
  struct digest digest;
  uint64_t offset;
  uint32_t packed_bytes, bytes;
};

struct bundle_record {
  struct digest request, digest;
  uint64_t offset;
  uint32_t packed_bytes, bytes, group;
};

/* The head, groups and records of a bundle, once they were checked. */
struct bundle_table {
  const uint8_t *data; /* begins with the head */
  uint64_t bytes, body_bytes;
  uint32_t group_count, record_count;
};

/* Check the head of a file of `file_bytes` bytes, of which BUNDLE_HEAD_BYTES are at `head`, and learn how long the
 * table is. NULL when sound; else what is wrong, in static storage. */
const char *bundle_head_check(const void *head, uint64_t file_bytes, struct bundle_table *table);

/* Check the rest of the table. `data` has the table->bytes bytes that the file begins with, and is borrowed. */
const char *bundle_table_check(struct bundle_table *table, const void *data);

void bundle_table_group(const struct bundle_table *table, uint32_t index, struct bundle_group *group);
void bundle_table_record(const struct bundle_table *table, uint32_t index, struct bundle_record *record);

/* Find the record of a request. False when there is none. */
bool bundle_table_find(const struct bundle_table *table, const struct digest *request, uint32_t *index);

#endif
