/**
 * @file
 * Source to cubin, through the cache. Needs no GPU and no driver; needs NVRTC only on a miss.
 */
#ifndef KJIT_BUILD_H
#define KJIT_BUILD_H

#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A compiled kernel in host memory: immutable, reference-counted, thread-safe. */
typedef struct kjit_artifact kjit_artifact;

/** `#define NAME VALUE` in front of the source. */
typedef struct kjit_define {
  const char *name;  /**< a C identifier                                     */
  const char *value; /**< replacement text without newline; NULL means "1"   */
} kjit_define;

/** A piece of source text. */
typedef struct kjit_source {
  const char *name; /**< as in an #include or a message: relative, "/"-separated; never a machine's own path */
  const char *text; /**< need not end in NUL                                                                 */
  size_t bytes;     /**< 0: strlen(text)                                                                      */
} kjit_source;

/** Answer only from this process's memory: no compile, no file, no load. For stream capture and hot paths. */
#define KJIT_BUILD_RESIDENT_ONLY 0x1u
/** Never compile: memory and cache tiers only; a miss is KJIT_ERR_NOT_FOUND. */
#define KJIT_BUILD_NO_COMPILE 0x2u
/**
 * Make the key and nothing else: the artifact has no cubin; nothing is looked up, compiled or recorded. For
 * callers that distribute builds over machines, or index data of their own by the key: kjit_artifact_get_key(). In
 * kjit_build() and the families' own build functions only.
 */
#define KJIT_BUILD_KEY_ONLY 0x4u

/**
 * Do not link: the artifact's bytes are an object, LTO-IR with the option -dlto and a relocatable cubin with -rdc=true,
 * to be a part of another request. One of the two options must be given. In kjit_build() only.
 */
#define KJIT_BUILD_OBJECT 0x8u

/** What the bytes of a part are. */
typedef enum kjit_part_kind {
  KJIT_PART_CUBIN = 1, /**< machine code; to be linked with others it must be relocatable (-rdc=true)           */
  KJIT_PART_PTX = 2,   /**< text of one PTX module                                                              */
  KJIT_PART_LTOIR = 3, /**< what -dlto gives; of this CUDA major and no newer than the linker                   */
  KJIT_PART_FATBIN = 4 /**< several of the above for several architectures; the fitting one is taken             */
} kjit_part_kind;

/** Compiled code as an input of a request. */
typedef struct kjit_part {
  const char *name; /**< for messages; NULL: its number                                                          */
  const void *data;
  size_t bytes;      /**< of PTX without the NUL, or 0: strlen(data); of all parts together at most 256 MiB       */
  uint32_t kind;     /**< a ::kjit_part_kind                                                                      */
  uint32_t reserved; /**< zero                                                                                    */
} kjit_part;

/**
 * Read every file that the source includes again, and compare its content. Without it a file that has the device,
 * inode, size, times of modification and of change that it had is taken to be the same; the time of change is the
 * kernel's own and is set by every write, rename and link. With KJIT_BUILD_RESIDENT_ONLY it means nothing.
 */
#define KJIT_BUILD_STRICT_SOURCES 0x100u
/** Do not look for the toolkit's headers: only the request's own headers and folders count. */
#define KJIT_BUILD_NO_TOOLKIT 0x200u
/**
 * Leave the cubin as the compiler made it. Without this flag, variables of namespaces, classes and templates that
 * nothing in the module uses and `names` does not name are taken out of it, where that saves 4 KiB: of libcu++'s
 * headers come a thousand of them, 135 KB in each cubin. Machine code does not change. Part of the key.
 */
#define KJIT_BUILD_KEEP_UNUSED 0x400u

/**
 * Nonzero: give up; the call ends with KJIT_ERR_CANCELLED. Asked by the calling thread, every few milliseconds while it
 * waits for another builder and while NVRTC compiles, in whatever phase that is. Others that wait for the same kernel
 * are not cancelled. What becomes of the compile: who ran out of time will ask again, so after a deadline it goes on
 * in the background, for at most kjit_runtime_options.background_max_ms, and a later call gets it. After a cancellation
 * it goes on for the others; when nobody is left, a compile server (runtime.h) kills it, and without one it goes on
 * too, since NVRTC cannot be interrupted.
 */
typedef int (*kjit_stop_fn)(void *user);

/**
 * What to build.
 *
 * Headers are found as NVRTC with -I finds them, and given to the compiler in memory: it opens no file, and compiles
 * what was hashed. A name is looked for in `headers`; then, if quoted, beside the including file; then in
 * `include_dirs`; then in the toolkit's own folders, which are found beside NVRTC, by $CUDA_HOME, $VIRTUAL_ENV and
 * $CONDA_PREFIX, and in /usr/local/cuda; then among the headers that kjit gives to every kernel, `<kjit/ptx/wgmma.cuh>`
 * and the like (kernel_src/README.md lists them); then among the library's stand-ins for headers of C and C++
 * (<cstdint>, <type_traits>, <math.h>, …), which rest on the toolkit's cuda/std where that is there. Conditions are
 * evaluated, computed names and #include_next are followed, and `#pragma once` knows a file by whatever name. The key
 * covers the files that were read, by the names under which they were included, and no path of this machine.
 *
 * Files are looked at again by every call, by their stamps (KJIT_BUILD_STRICT_SOURCES says which, and reads them
 * instead); by KJIT_BUILD_RESIDENT_ONLY and by a kjit_program not at all. A file changed within two seconds before it
 * was read is always compared by content, since the clock of its stamp may not have moved.
 *
 * Options: those that change nothing but the code and the messages. Others are refused by name. Their spelling does
 * not matter: "-lineinfo" and "--generate-line-info" are one.
 *
 * -dlto lets nvJitLink drop every variable and kernel that neither `entry` nor `names` names, those that
 * KJIT_BUILD_KEEP_UNUSED speaks of and others: a kernel with cuda/std and curand falls from 268,760 to 3,624 bytes
 * (sm_80, CUDA 13.0) in about the same time. It is not the default, because a variable that is looked up by name later
 * must then be among `names`, and because the key names nvJitLink too, so that a machine without it would not find what
 * another one built.
 */
typedef struct kjit_build_request {
  size_t struct_size;
  const char *arch; /**< "sm_80", "sm_90a", …; NULL, in kjit_kernel_get() only: the current device's */
  /** The kernel: the name of an `extern "C" __global__` function, a mangled name, or a name expression, which is
      whatever is no C identifier (`n::k<float, 4>`). NULL: whatever the module has (module.h). */
  const char *entry;
  kjit_source source;         /**< the .cu text; all zero when there are parts alone                        */
  const kjit_source *headers; /**< headers held in memory, found by their name as written in #include       */
  size_t header_count;
  const char *const *include_dirs; /**< folders searched for headers that `headers` lacks, in order              */
  size_t include_dir_count;
  const kjit_define *defines; /**< in front of the source, in the order given                               */
  size_t define_count;
  const char *const *options; /**< further NVRTC options, e.g. "--maxrregcount=128"; not -D, -I, -arch      */
  size_t option_count;
  uint32_t flags;      /**< KJIT_BUILD_*                                                             */
  uint32_t timeout_ms; /**< 0: none; else KJIT_ERR_TIMEOUT when the artifact is not there in time, whatever the
                            compiler does; what becomes of the compile is said at ::kjit_stop_fn           */
  kjit_stop_fn stop;   /**< NULL: never; else asked now and then while the call waits or compiles     */
  void *stop_user;     /**< passed to stop                                                            */
  /** Further kernels and variables that the module must have, as name expressions: functions as they are called, with
      their template arguments (`n::k<float, 4>`); `__constant__` variables by name; `__device__` variables and variable
      templates with an ampersand (`&n::count`, `&n::table<int>`). They are asked of the compiler, so an `extern "C"`
      name may stand here too, but not a mangled one. */
  const char *const *names;
  size_t name_count;
  /** Compiled code, linked with the source and with each other by nvJitLink; a single cubin without a source is taken
     as it is. With parts the source is compiled for linking: with -dlto when one of them is LTO-IR, else -rdc=true. */
  const kjit_part *parts;
  size_t part_count;
} kjit_build_request;

static inline kjit_build_request kjit_build_request_default(void) {
  kjit_build_request request = KJIT_ZERO;
  request.struct_size = sizeof request;
  return request;
}

/*
 * Linking. The options -dlto and -rdc=true have the source compiled for linking and linked at once, also without parts.
 * With -dlto, code generation happens in the link step: the kernels that the request names are kept, and variables that
 * no kernel uses and no name expression names are left out, which makes small cubins of sources with large headers.
 * nvJitLink is looked for beside NVRTC and in the toolkit's folders; its build is part of the key.
 */

/** Where an artifact came from. The names in JSON are "memory", "bundle", "site", "user", "remote", "built". */
typedef enum kjit_origin {
  KJIT_ORIGIN_NONE = 0,
  KJIT_ORIGIN_MEMORY = 1,
  KJIT_ORIGIN_BUNDLE = 2,
  KJIT_ORIGIN_SITE = 3,
  KJIT_ORIGIN_USER = 4,
  KJIT_ORIGIN_REMOTE = 5,
  KJIT_ORIGIN_BUILT = 6
} kjit_origin;

/**
 * The spelling of an origin in JSON: "memory", "built", …; "none" for an unknown value.
 * @param origin  any value
 * @return the spelling, in static storage
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_origin_name(kjit_origin origin);

/** What is known of an artifact. Pointers are borrowed from it. */
typedef struct kjit_artifact_info {
  size_t struct_size;
  const char *key;       /**< 64 hex digits: BLAKE2b-256 of the key text                                  */
  const char *key_text;  /**< what the digest covers, readable: cache/README.md has the grammar           */
  const char *arch;      /**< as asked                                                                    */
  const char *entry;     /**< kernel name                                                                 */
  const void *cubin;     /**< ELF image                                                                   */
  size_t cubin_bytes;    /**< 0 for the artifact of a failed compile                                      */
  const char *log;       /**< compiler's messages (warnings; errors of a failed compile), "" if none      */
  uint32_t registers;    /**< per thread                                                                  */
  uint32_t spill_bytes;  /**< spill stores + spill loads, per thread, as ptxas counts them                */
  uint32_t local_bytes;  /**< stack frame per thread                                                      */
  uint32_t shared_bytes; /**< static shared memory per block                                              */
  uint32_t max_threads;  /**< from __launch_bounds__, 0 if unstated                                       */
  uint32_t origin;       /**< a ::kjit_origin: where this call's answer came from                         */
  double compile_ms;     /**< of the compile that made it, whenever and wherever that was                 */
  uint32_t kernel_count; /**< for kjit_artifact_get_kernel(); 0 for an object and for a failed compile    */
  uint32_t reserved;     /**< zero                                                                        */
} kjit_artifact_info;

/**
 * Compile, or find what an equal request compiled before: in this process, then in the cache tiers, then NVRTC. One
 * builder per key: other threads and processes that ask for it meanwhile wait for that one.
 *
 * @param      runtime  the runtime
 * @param      request  what to compile; borrowed for the call
 * @param[out] out  the artifact, released with kjit_artifact_release(). On KJIT_ERR_COMPILE (only) it is set too: an
 *                  artifact without cubin whose log says what the compiler said.
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG   a field of the request is missing or malformed
 * @retval KJIT_ERR_UNSUPPORTED   arch is not one that this NVRTC can compile for
 * @retval KJIT_ERR_NO_NVRTC      a compile is needed and NVRTC is not there: the error says where it was looked for
 * @retval KJIT_ERR_COMPILE       the compiler rejected the source
 * @retval KJIT_ERR_NOT_FOUND     KJIT_BUILD_NO_COMPILE was set and no tier has it; also an #include that is nowhere
 * @retval KJIT_ERR_NOT_RESIDENT  KJIT_BUILD_RESIDENT_ONLY was set and it is not in memory
 * @retval KJIT_ERR_TIMEOUT, KJIT_ERR_CANCELLED, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_build(kjit_runtime *runtime, const kjit_build_request *request,
                                               kjit_artifact **out, kjit_error *error);

/**
 * The source that would be compiled for a request: its defines, a #line that names the source, and the source.
 * Headers are not looked for. For people.
 * @param      runtime  the runtime
 * @param      request  what would be compiled
 * @param[out] text  NUL-terminated; freed with kjit_text_free()
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG, KJIT_ERR_NOT_FOUND, KJIT_ERR_NO_MEMORY  as kjit_build()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_build_source(kjit_runtime *runtime, const kjit_build_request *request,
                                                      char **text, kjit_error *error);

/**
 * A source with its headers, options and folders, taken once. A repeated request for one of its kernels costs a
 * look-up, less than a microsecond. Any number of threads may ask one program.
 *
 * Files are looked at when a variant is asked for the first time, and not again: who edits a header makes a new
 * program.
 */
typedef struct kjit_program kjit_program;

/** Which kernel of a program. What is left out is as in the program's request. */
typedef struct kjit_program_variant {
  size_t struct_size;
  const char *entry;          /**< NULL: the request's                                */
  const char *arch;           /**< NULL: the request's                                */
  const kjit_define *defines; /**< behind the request's own; none may be among those  */
  size_t define_count;
  uint32_t flags; /**< KJIT_BUILD_*, added to the request's; they tell no variants apart */
} kjit_program_variant;

/**
 * Copy a request; nothing of it need live longer than the call. Nothing is looked for or compiled yet.
 * @param      runtime  the runtime
 * @param request  `entry` and `arch` may be NULL where every variant names its own
 * @param[out] out  released with kjit_program_release(), before the runtime is destroyed
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG, KJIT_ERR_UNSUPPORTED, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_program_create(kjit_runtime *runtime, const kjit_build_request *request,
                                                        kjit_program **out, kjit_error *error);

/**
 * The artifact of a variant, as kjit_build() gives it; when it was asked for before, the same one from the program.
 * @param      program  the program
 * @param variant  NULL: the request as it is
 * @param[out] out  released with kjit_artifact_release(); its origin is that of the first call
 * @retval KJIT_OK
 * @retval others  as kjit_build(), with an artifact on KJIT_ERR_COMPILE as there
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_program_get(kjit_program *program, const kjit_program_variant *variant,
                                                     kjit_artifact **out, kjit_error *error);

/**
 * End a program, when no call with it is running. What it gave lives on.
 * @param program  may be NULL
 * @par Thread safety  Not thread-safe.
 */
KJIT_API void kjit_program_release(kjit_program *program);

/**
 * Take another reference.
 * @param artifact  must not be NULL
 * @return `artifact`
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_artifact *kjit_artifact_retain(kjit_artifact *artifact);

/**
 * Give a reference back; the last one frees.
 * @param artifact  may be NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API void kjit_artifact_release(kjit_artifact *artifact);

/**
 * Read what is known of an artifact. `info->struct_size` must be set.
 * @param      artifact  the artifact
 * @param[out] info      what is known of it
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_artifact_get_info(const kjit_artifact *artifact, kjit_artifact_info *info,
                                                           kjit_error *error);

/** What is known of one kernel of an artifact. Texts are borrowed from it and not NUL-terminated. */
typedef struct kjit_kernel_info {
  size_t struct_size;
  const char *name; /**< in the cubin: mangled, unless it is `extern "C"`                        */
  size_t name_bytes;
  const char *expression; /**< of the request that means it; none: expression_bytes is 0        */
  size_t expression_bytes;
  uint32_t registers;    /**< per thread                                                        */
  uint32_t spill_bytes;  /**< spill stores + spill loads, per thread, as ptxas counts them      */
  uint32_t local_bytes;  /**< stack frame per thread                                            */
  uint32_t shared_bytes; /**< static shared memory per block                                    */
  uint32_t max_threads;  /**< from __launch_bounds__, 0 if unstated                             */
  uint32_t reserved;     /**< zero                                                              */
} kjit_kernel_info;

/**
 * Read what is known of a kernel. `info->struct_size` must be set. The figures of a cubin that was given as a part
 * are 0 but for max_threads: no compiler said them.
 * @param      artifact  the artifact
 * @param      index     below kjit_artifact_info.kernel_count
 * @param[out] info      what is known of the kernel
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_artifact_get_kernel(const kjit_artifact *artifact, uint32_t index,
                                                             kjit_kernel_info *info, kjit_error *error);

/** Where the time of a compile went, in milliseconds. Loading is not in it: that is the driver's, and comes later. */
typedef struct kjit_phases {
  size_t struct_size;
  double includes_ms;  /**< reading the source and finding and reading what it includes                 */
  double compile_ms;   /**< NVRTC and nvJitLink, from their start to the cubin: the following and the rest */
  double front_end_ms; /**< reading C++; this and the next two need NVRTC 12.2 and KJIT_RUNTIME_TIME_PHASES */
  double optimizer_ms; /**< from there to PTX                                                           */
  double ptxas_ms;     /**< from PTX to machine code                                                    */
  double link_ms;      /**< nvJitLink; 0 when nothing was linked                                        */
  double publish_ms;   /**< writing the entry into the user folder                                      */
} kjit_phases;

/**
 * Where the time of the compile went that made this artifact. `phases->struct_size` must be set.
 * @param      artifact  an artifact
 * @param[out] phases    all zero when this process did not compile it
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_artifact_get_phases(const kjit_artifact *artifact, kjit_phases *phases,
                                                             kjit_error *error);

/** What a kernel is known by, as hex digits and NUL. */
typedef struct kjit_key {
  size_t struct_size;
  char key[65];     /**< as kjit_artifact_info.key; "" where it was made without NVRTC, which the key names     */
  char request[65]; /**< that of the key text without the compiler: equal on every machine, whatever its NVRTC;
                         bundles are searched by it */
} kjit_key;

/**
 * `key->struct_size` must be set.
 * @param      artifact  the artifact
 * @param[out] key       its key
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_artifact_get_key(const kjit_artifact *artifact, kjit_key *key,
                                                          kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
