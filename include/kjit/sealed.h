/**
 * @file
 * Sealed programs: kernels' sources with everything that they include, their defines, options, names and architectures
 * in one read-only file. An application opens it in place of a source and folders, and needs no header to find its
 * kernels in bundles and caches; with NVRTC it can compile them as well. cache/README.md has the format, and `kjit
 * pack` makes one on the command line.
 *
 * A kernel has one key, whether it is asked for by its source or by a program that was sealed from it.
 */
#ifndef KJIT_SEALED_H
#define KJIT_SEALED_H

#include <kjit/bundle.h>
#include <kjit/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Opening one ---- */

/**
 * Open a sealed program. kjit_program_get() and kjit_program_get_kernel() then give what was sealed and nothing else: a
 * variant's entry and arch must be among what was sealed, and its defines are all the defines of one sealed request, in
 * their order, or none for the request that was sealed first.
 *
 * With kjit_runtime_options.trusted_keys the program must be signed by one of these keys.
 *
 * @param      runtime  the runtime
 * @param      path     read whole before the call returns; NULL: `blob` is it
 * @param      blob     its bytes, which must outlive the program; NULL: `path` is it
 * @param[out] out      released with kjit_program_release(), before the runtime is destroyed
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    no such file
 * @retval KJIT_ERR_IO           it cannot be read, or is larger than 1 GiB
 * @retval KJIT_ERR_CORRUPT      not a sealed program, or damaged; the message says where
 * @retval KJIT_ERR_UNTRUSTED    the runtime has trusted keys, and none of them signed what is there; or its signature
 *                               is wrong
 * @retval KJIT_ERR_INVALID_ARG  neither or both of path and blob are given
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_program_open(kjit_runtime *runtime, const char *path,
                                                      const kjit_bundle_blob *blob, kjit_program **out,
                                                      kjit_error *error);

/** One kernel of a sealed program. Pointers are borrowed from the program. */
typedef struct kjit_program_kernel {
  size_t struct_size;
  const char *source;           /**< name of the source                                                     */
  kjit_program_variant variant; /**< entry, arch and defines: what kjit_program_get() takes to get this one */
  uint32_t files;               /**< of its closure, the source among them                                  */
  uint32_t has_texts;           /**< 1: it can be compiled; 0: it must be found in a bundle or a cache      */
} kjit_program_kernel;

/** Nonzero: visit no more. */
typedef int (*kjit_program_visit)(void *user, const kjit_program_kernel *kernel);

/**
 * Visit every kernel of a sealed program in the order in which they were sealed.
 * @param program  a sealed program
 * @param visit    called for each kernel
 * @param user     passed to visit
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  an argument is missing, or the program is not a sealed one
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_program_list(const kjit_program *program, kjit_program_visit visit, void *user,
                                                      kjit_error *error);

/* ---- Making one ---- */

/** Leave the texts out: names and digests remain. Kernels are found as before, and cannot be compiled. */
#define KJIT_SEAL_WITHOUT_TEXTS 0x1u

/** Collects requests. Not thread-safe. */
typedef struct kjit_sealer kjit_sealer;

/**
 * Make a sealer, to which requests are added.
 * @param[out] out       ended with kjit_sealer_destroy()
 * @param      compress  NULL: texts are stored as they are
 * @param      user      passed to compress
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_sealer_create(kjit_sealer **out, kjit_compress_fn compress, void *user,
                                                       kjit_error *error);

/**
 * End a sealer, and what was borrowed from it.
 * @param sealer  may be NULL
 * @par Thread safety  Not thread-safe.
 */
KJIT_API void kjit_sealer_destroy(kjit_sealer *sealer);

/**
 * Build a request (kjit_build()) and seal what its compile read. The compile shows that the closure is complete; with
 * KJIT_BUILD_KEY_ONLY nothing is compiled, and the closure is what kjit itself finds.
 *
 * @param      sealer    the sealer
 * @param      runtime   the runtime
 * @param      request   what to build; borrowed for the call
 * @param[out] artifact  NULL, or the artifact as kjit_build() gives it, also on KJIT_ERR_COMPILE
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  beyond the format's bounds: parts are not sealed; 1,048,576 files, 65,536 requests that
 *                               differ by more than their entry
 * @retval any of kjit_build()'s
 * @par Thread safety  Not thread-safe for the sealer.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_sealer_add(kjit_sealer *sealer, kjit_runtime *runtime,
                                                    const kjit_build_request *request, kjit_artifact **artifact,
                                                    kjit_error *error);

/**
 * Make the program. The same requests, in the same order, give the same bytes.
 * @param      sealer  the sealer
 * @param      flags   KJIT_SEAL_*
 * @param[out] blob    borrowed from the sealer until it is ended or this is called again
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  nothing was added, or unknown flags
 * @retval KJIT_ERR_UNSUPPORTED  the texts are larger than 512 MiB
 * @retval KJIT_ERR_INTERNAL     the compressor wrote past its room
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Not thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_sealer_finish(kjit_sealer *sealer, uint32_t flags, kjit_bundle_blob *blob,
                                                       kjit_error *error);

/**
 * Sign what kjit_sealer_finish() made last: the bytes that belong behind it.
 * @param      sealer      the sealer
 * @param      secret_key  64 lower-case hex digits, of kjit_bundle_keygen()
 * @param[out] signature   the bytes
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  the key is malformed, or nothing was made
 * @par Thread safety  Not thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_sealer_sign(const kjit_sealer *sealer, const char *secret_key,
                                                     uint8_t signature[KJIT_BUNDLE_SIGNATURE_BYTES], kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
