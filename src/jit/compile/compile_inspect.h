/* What a compile leaves for people who look inside: its PTX, and where its time went. */
#ifndef KJIT_JIT_COMPILE_COMPILE_INSPECT_H
#define KJIT_JIT_COMPILE_COMPILE_INSPECT_H

#include "jit/compile/compile_internal.h"

/* "--time=/proc/self/fd/" and a number. */
#define COMPILE_TIME_OPTION_BYTES 48

/* The memory into which NVRTC writes its times; -1: none, because nobody asked, or it is not to be had. Otherwise
 * `option` is to be among the compile's options. */
int compile_time_begin(const struct job *job, char option[COMPILE_TIME_OPTION_BYTES]);

/* Read the times into the result, and let the memory go. */
void compile_time_end(int file, struct job *job);

/* Keep the PTX of a compile that succeeded, where somebody asked for it. Without it nothing else changes. */
void compile_keep_ptx(struct job *job);

#endif
