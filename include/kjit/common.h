/**
 * @file
 * What every kjit header shares: version, visibility, status codes, errors, allocation and log hooks.
 *
 * Conventions of the whole API:
 *  - Every fallible function returns a ::kjit_status (0 is success) and takes a `kjit_error *` last, which may be
 *    NULL. The error is reset at the call's start; after a failure it holds the first thing that went wrong.
 *  - Argument order: object, inputs, outputs, error. `*_create` puts its output first.
 *  - On failure an output pointer is set to NULL and an output number to 0, unless a function says otherwise.
 *  - What comes out through a pointer-to-pointer is yours to release; what comes back as a return value is borrowed
 *    from the object it was asked of. Inputs are borrowed for the call; what is kept is copied.
 *  - Option structs begin with `struct_size` (set it to sizeof the struct, or use the `_default()` function); a field
 *    left zero means its default. They grow only at the end.
 *  - Thread safety is stated by one of three words: thread-safe (any threads, at once), thread-compatible (distinct
 *    objects at once), not thread-safe (nobody else may be using the object).
 */
#ifndef KJIT_COMMON_H
#define KJIT_COMMON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KJIT_VERSION_MAJOR  0
#define KJIT_VERSION_MINOR  1
#define KJIT_VERSION_PATCH  0
#define KJIT_VERSION_STRING "0.1.0"

#if defined(__GNUC__) || defined(__clang__)
#define KJIT_API                 __attribute__((visibility("default")))
#define KJIT_NODISCARD           __attribute__((warn_unused_result))
#define KJIT_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define KJIT_API
#define KJIT_NODISCARD
#define KJIT_PRINTF(text, first)
#endif

/** All-zero initializer without a warning about missing members in either language. */
#ifdef __cplusplus
#define KJIT_ZERO                                                                                                      \
  {}
#else
#define KJIT_ZERO                                                                                                      \
  { 0 }
#endif

/**
 * The version of the library that runs, which may differ from KJIT_VERSION_STRING of the header it was compiled with.
 * @return "major.minor.patch", in static storage
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_version(void);

/* X(name, value, text). Values are ABI: append only, never renumber, never reuse. */
#define KJIT_STATUS_MAP(X)                                                                                             \
  X(OK, 0, "success")                                                                                                  \
  X(ERR_INVALID_ARG, 1, "invalid argument")                                                                            \
  X(ERR_NO_MEMORY, 2, "out of host memory")                                                                            \
  X(ERR_UNSUPPORTED, 3, "not supported by this library, architecture or device")                                       \
  X(ERR_INVALID_CONFIG, 4, "the configuration breaks a rule of its kernel family")                                     \
  X(ERR_PARSE, 5, "text could not be parsed")                                                                          \
  X(ERR_NO_NVRTC, 6, "NVRTC is missing or unusable")                                                                   \
  X(ERR_COMPILE, 7, "the kernel source was rejected by the compiler")                                                  \
  X(ERR_NO_DRIVER, 8, "the CUDA driver or a GPU is missing or unusable")                                               \
  X(ERR_DRIVER, 9, "a CUDA driver call failed")                                                                        \
  X(ERR_IO, 10, "a file could not be read or written")                                                                 \
  X(ERR_CORRUPT, 11, "data is damaged")                                                                                \
  X(ERR_NOT_RESIDENT, 12, "the kernel is not resident and the call forbade building or loading it")                    \
  X(ERR_NOT_FOUND, 13, "not found")                                                                                    \
  X(ERR_TIMEOUT, 14, "the deadline passed")                                                                            \
  X(ERR_CANCELLED, 15, "the caller cancelled")                                                                         \
  X(ERR_UNTRUSTED, 16, "the signature is missing or wrong")                                                            \
  X(ERR_INTERNAL, 17, "internal error")

/** Result of every fallible function. 0 is success. */
typedef enum kjit_status {
#define KJIT_STATUS_ENUM(name, value, text) KJIT_##name = value,
  KJIT_STATUS_MAP(KJIT_STATUS_ENUM)
#undef KJIT_STATUS_ENUM
      KJIT_STATUS_FORCE_INT = 0x7fffffff
} kjit_status;

/**
 * A status by its name in C.
 * @param status  any value; a number from a newer library is allowed
 * @return "KJIT_ERR_COMPILE" for ::KJIT_ERR_COMPILE, "KJIT_ERR_?" for an unknown value; static storage
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_status_name(kjit_status status);

/**
 * What a status means in general; what went wrong in one call is in kjit_error.message.
 * @param status  any value
 * @return one line, in static storage
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_status_text(kjit_status status);

/** Which interface the number in kjit_error.cause belongs to. */
typedef enum kjit_cause_domain {
  KJIT_CAUSE_NONE = 0,  /**< no number                  */
  KJIT_CAUSE_ERRNO = 1, /**< errno                      */
  KJIT_CAUSE_CUDA = 2,  /**< CUresult of the driver API */
  KJIT_CAUSE_NVRTC = 3  /**< nvrtcResult                */
} kjit_cause_domain;

/** What went wrong: caller-owned, filled without allocating. 512 bytes. */
typedef struct kjit_error {
  int32_t status;       /**< a ::kjit_status                                                    */
  int32_t cause_domain; /**< a ::kjit_cause_domain                                              */
  int64_t cause;        /**< the lower layer's own number, 0 if none                            */
  char message[496];    /**< one line of UTF-8, no trailing newline: what, where, and the rule  */
} kjit_error;

/**
 * The functions by which the library allocates host memory. All zero means malloc() and free(). Set both functions or
 * neither. They must be thread-safe, and must stay valid until every object made with them has been destroyed.
 */
typedef struct kjit_allocator {
  void *(*allocate)(void *user, size_t bytes); /**< NULL on failure; aligned for any type */
  void (*release)(void *user, void *memory);   /**< accepts NULL                          */
  void *user;                                  /**< passed back                           */
} kjit_allocator;

/** How much a log line matters. */
typedef enum kjit_log_level {
  KJIT_LOG_ERROR = 0,   /**< reserved: what makes a call fail is returned, not logged        */
  KJIT_LOG_WARNING = 1, /**< kjit goes on, but worse: in memory only, an entry built again   */
  KJIT_LOG_INFO = 2,    /**< reserved: choices of kjit                                       */
  KJIT_LOG_DEBUG = 3    /**< details for developers of kjit                                  */
} kjit_log_level;

/**
 * Receives what the library has to log, one line at a time. The library itself never prints.
 * @param user   kjit_runtime_options.log_user
 * @param level  how much the line matters
 * @param line   without a newline; borrowed for the call
 * @par Thread safety  Called by any thread that uses the runtime, by several at once; no lock of the library is held.
 */
typedef void (*kjit_log_fn)(void *user, kjit_log_level level, const char *line);

#ifdef __cplusplus
}
#endif
#endif
