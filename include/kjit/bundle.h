/**
 * @file
 * Bundles: many kernels in one read-only file, or in the memory of a program that links them in. An application that
 * ships one needs neither NVRTC nor a writable disk. A runtime uses bundles by kjit_runtime_options.bundle_paths and
 * .bundle_blobs; this header makes them, lists what they hold and signs them. cache/README.md has the format.
 */
#ifndef KJIT_BUNDLE_H
#define KJIT_BUNDLE_H

#include <kjit/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What a bundle holds ---- */

/** An open bundle. Thread-safe. */
typedef struct kjit_bundle kjit_bundle;

/**
 * Open a bundle and check its index. With trusted keys its signature and the digest of every kernel are checked too.
 *
 * @param[out] out           closed with kjit_bundle_close()
 * @param      path          a file, mapped while the bundle is open; to replace it, rename another over it, since
 *                           writing into a mapped file changes the open bundle; NULL: `blob` is it
 * @param      blob          its bytes, which must outlive the bundle; NULL: `path` is it
 * @param      trusted_keys  public keys, 64 lower-case hex digits each; may be NULL when `trusted_key_count` is 0
 * @param      trusted_key_count  how many there are; 0 accepts any sound bundle
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    no such file
 * @retval KJIT_ERR_IO           it cannot be read, or is larger than 4 GiB
 * @retval KJIT_ERR_CORRUPT      not a bundle, or damaged; the message says where
 * @retval KJIT_ERR_UNTRUSTED    trusted keys are given and it is unsigned, signed by another key, or altered; or its
 *                               signature is wrong
 * @retval KJIT_ERR_INVALID_ARG  a key is malformed; neither or both of path and blob are given
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_open(kjit_bundle **out, const char *path, const kjit_bundle_blob *blob,
                                                     const char *const *trusted_keys, size_t trusted_key_count,
                                                     kjit_error *error);

/**
 * Close a bundle.
 * @param bundle  may be NULL
 * @par Thread safety  Not thread-safe: nobody else may be using the bundle.
 */
KJIT_API void kjit_bundle_close(kjit_bundle *bundle);

/** What a bundle says of itself. */
typedef struct kjit_bundle_info {
  size_t struct_size;
  uint64_t bytes;      /**< size of the file                                                     */
  uint64_t body_bytes; /**< size without the signature                                           */
  uint32_t entries;    /**< kernels                                                              */
  uint32_t archs;      /**< architectures                                                        */
  char digest[65];     /**< BLAKE2b-256 of the index, hex: equal for equal content               */
  char signer[65];     /**< public key, hex; "" for an unsigned one. A wrong signature never opens */
} kjit_bundle_info;

/**
 * What a bundle says of itself.
 * @param      bundle  an open bundle
 * @param[out] info    `info->struct_size` must be set
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_get_info(const kjit_bundle *bundle, kjit_bundle_info *info,
                                                         kjit_error *error);

/**
 * Visit every kernel in the order of the index; each is unpacked and checked whole. In the visited
 * ::kjit_cache_entry `bytes` is the packed size, `origin` is ::KJIT_ORIGIN_BUNDLE, `last_used` and `compile_ms` are 0.
 * A damaged kernel has `status` ::KJIT_ERR_CORRUPT, and `damage` says why.
 * @param bundle  an open bundle
 * @param visit   called for each kernel
 * @param user    passed to visit
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_list(kjit_bundle *bundle, kjit_cache_visit visit, void *user,
                                                     kjit_error *error);

/* ---- Making one ---- */

/**
 * Compress `bytes` bytes at `data` to one zstd frame (RFC 8878) that states its content's size, with a dictionary of
 * raw content. The library itself only decompresses.
 * @param      user              what was passed to kjit_bundle_writer_create()
 * @param      dictionary        bytes that the decompressor will have
 * @param      dictionary_bytes  how many; may be 0
 * @param      data              what is compressed
 * @param      bytes             how many
 * @param[out] out               where the frame goes
 * @param      capacity          room there, in bytes
 * @return size of the frame in `out`; 0 when it does not fit into `capacity`, then the kernel is stored as it is
 */
typedef size_t (*kjit_compress_fn)(void *user, const void *dictionary, size_t dictionary_bytes, const void *data,
                                   size_t bytes, void *out, size_t capacity);

/** Collects kernels. Not thread-safe. */
typedef struct kjit_bundle_writer kjit_bundle_writer;

/**
 * Begin a bundle.
 * @param[out] out       ended with kjit_bundle_writer_destroy()
 * @param      compress  NULL stores kernels uncompressed
 * @param      user      passed to compress
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_writer_create(kjit_bundle_writer **out, kjit_compress_fn compress,
                                                              void *user, kjit_error *error);

/**
 * End a writer and the bundle that it made.
 * @param writer  may be NULL
 * @par Thread safety  Not thread-safe.
 */
KJIT_API void kjit_bundle_writer_destroy(kjit_bundle_writer *writer);

/**
 * Add a copy of a kernel. When two kernels answer one request and differ by the compiler alone, the one whose key text
 * is greater stays.
 * @param writer    the bundle in the making
 * @param artifact  the compiled kernel
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  the artifact of a failed compile
 * @retval KJIT_ERR_UNSUPPORTED  more than 1,048,576 kernels
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Not thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_writer_add(kjit_bundle_writer *writer, const kjit_artifact *artifact,
                                                           kjit_error *error);

/**
 * Add the sound entries of a runtime's user folder.
 * @param      writer   the bundle in the making
 * @param      runtime  the runtime whose folder is read
 * @param      filter   as for kjit_cache_export(); NULL for every entry
 * @param[out] report   may be NULL; entries and bytes count what was added, damaged what was left out
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_IO, KJIT_ERR_UNSUPPORTED, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Not thread-safe for the writer; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_writer_add_cache(kjit_bundle_writer *writer, kjit_runtime *runtime,
                                                                 const char *filter, kjit_cache_report *report,
                                                                 kjit_error *error);

/**
 * Make the bundle. The same kernels and compressor give the same bytes, whenever, wherever and in whatever order they
 * were compiled and added.
 *
 * @param      writer  the bundle in the making
 * @param[out] blob    borrowed from the writer until the writer is ended or this is called again
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  more than 4 GiB, or 256 architectures
 * @retval KJIT_ERR_INTERNAL     the compressor wrote past its room
 * @retval KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Not thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_writer_finish(kjit_bundle_writer *writer, kjit_bundle_blob *blob,
                                                              kjit_error *error);

/* ---- Signing ---- */

/** Bytes that a signature adds at a bundle's end. */
#define KJIT_BUNDLE_SIGNATURE_BYTES 104

/**
 * A new pair of Ed25519 keys from the system's random numbers, as hex digits and NUL.
 * @param[out] secret_key  32-byte seed: whoever has it can sign
 * @param[out] public_key  for kjit_runtime_options.trusted_keys
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_keygen(char secret_key[65], char public_key[65], kjit_error *error);

/**
 * Sign a bundle: checks it, then computes the bytes that belong behind its body (kjit_bundle_info.body_bytes), in place
 * of a signature that it may have already.
 *
 * @param      bundle      an open bundle
 * @param      secret_key  64 lower-case hex digits
 * @param[out] signature   the bytes to write behind the body
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  the key is malformed
 * @retval KJIT_ERR_CORRUPT      the index or a kernel's digest is wrong; a damaged bundle is not signed
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_bundle_sign(const kjit_bundle *bundle, const char *secret_key,
                                                     uint8_t signature[KJIT_BUNDLE_SIGNATURE_BYTES], kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
