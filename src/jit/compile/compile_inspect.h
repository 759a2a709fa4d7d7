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

/* Debuggers and profilers open the files that a line table names. NVRTC writes the names by which it was given the
 * headers, behind the process's folder; so with -lineinfo or -G each text begins with a #line that names the file that
 * it was read from, and a text that was given in memory is called COMPILE_MEMORY_FOLDER and its name. */
#define COMPILE_MEMORY_FOLDER "/kjit/memory/"
bool compile_wants_lines(const struct jit_request *request);

/* Append that #line. */
void compile_append_line(struct text *text, const char *path, const char *name);

/* The texts of `count` files behind such lines (mem_free each), or NULL for all where memory is short. */
bool compile_line_texts(const struct mem *mem, const struct source_file *files, size_t count, const char **texts);

/* The PTX of a compile that succeeded (mem_free); NULL when this NVRTC gives none, or memory is short. */
char *compile_read_ptx(const struct job *job, size_t *bytes);

/* Keep the PTX of a compile that succeeded, where somebody asked for it. Without it nothing else changes. */
void compile_keep_ptx(struct job *job);

#endif
