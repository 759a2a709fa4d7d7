/**
 * @file
 * The compile worker: a program that compiles for others, one process for each kernel.
 *
 * kjit starts it when kjit_runtime_options.compile_server asks for it. It is installed as kjit-compile-worker; a
 * program that has libkjit.a inside may ship one of its own, whose main() is this function, and name it by
 * kjit_runtime_options.worker_path.
 */
#ifndef KJIT_WORKER_H
#define KJIT_WORKER_H

#include <kjit/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Serve the library that started this process until it ends. Not for any other process: it closes descriptors, blocks
 * signals and forks.
 * @param argc, argv  as main() got them
 * @return what main() returns
 * @par Thread safety  Not thread-safe: no other thread may be running.
 */
KJIT_API int kjit_worker_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
